"""Files that are replaced whole or not at all.

What is written goes to a file of its own in the same folder, reaches the disk, and takes the old file's name in one
step. Whatever happens before that step, an error, a full disk, a kill, a power cut, leaves the old file as it was.

Note [Leftovers]: a killed process leaves its half-written file behind. Each such file is locked by the process that
writes it, for as long as it lives; a lock that can be had means that the writer is gone, and the next save of the same
name takes the file away. A process number would not do: another machine, or container, may share the folder.
"""
import contextlib
import errno
import os
import stat

try:
    import fcntl
except ImportError:                                 # Windows, where a file that is open elsewhere cannot be removed
    fcntl = None  # type: ignore[assignment]

PARTIAL_SUFFIX = ".partial"
MAXIMUM_NAMES_TRIED = 100


@contextlib.contextmanager
def replacing(path):
    """A binary file to write to, which becomes `path` when the block ends without an error.

    A link is followed to the file that it means. A new file has the permissions that `open` would give it, a replaced
    one keeps those it had; until it is whole, its owner alone may read it. What is not a regular file (a pipe,
    `/dev/null`) is written to directly.
    """
    path = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(path)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as file:
            yield file
        return
    if mode is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    beginning = os.path.join(folder, f".{name[:50]}.")
    remove_leftovers(folder, beginning)
    handle, partial = begin(beginning)
    done = False
    try:
        with open(handle, "wb", buffering=1 << 16) as file:
            yield file
            file.flush()
            if hasattr(os, "fchmod"):
                meant = stat.S_IMODE(mode if mode is not None else mode_of_new_files(beginning))
                if meant != stat.S_IMODE(os.fstat(handle).st_mode):         # some file systems have one mode for all
                    os.fchmod(handle, meant)
            os.fsync(handle)
            if fcntl is not None:                   # locked while it takes the name; Windows renames closed files only
                os.replace(partial, path)
                done = True
        if not done:
            os.replace(partial, path)
            done = True
    finally:
        if not done:
            with contextlib.suppress(FileNotFoundError):            # taken for a leftover, now that it is closed
                os.unlink(partial)
    sync_folder(folder)


def begin(beginning):
    """An open, locked file of a new name that starts with `beginning`: its descriptor and its name."""
    for _ in range(MAXIMUM_NAMES_TRIED):
        partial = f"{beginning}{os.urandom(4).hex()}{PARTIAL_SUFFIX}"
        try:
            handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        except FileExistsError:
            continue
        if fcntl is None:
            return handle, partial
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:                     # another save took it for a leftover, before the lock
            os.close(handle)
            continue
        except OSError:                             # a file system without locks: no process takes it for a leftover
            return handle, partial
        if os.fstat(handle).st_nlink:
            return handle, partial
        os.close(handle)                            # and has removed it
    raise FileExistsError(errno.EEXIST, f"no free name for a temporary file in {MAXIMUM_NAMES_TRIED} tries", beginning)


def mode_of_new_files(beginning):
    """The permissions that `open` gives a new file here: an empty one is made to see, since the mask of the process can
    only be read by setting it, and the folder may have a say too.
    """
    path = f"{beginning}{os.urandom(4).hex()}{PARTIAL_SUFFIX}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return os.fstat(handle).st_mode
    finally:
        os.close(handle)
        with contextlib.suppress(FileNotFoundError):                # another save took it for a leftover
            os.unlink(path)


def remove_leftovers(folder, beginning):
    """Remove what killed processes have left of earlier saves; see Note [Leftovers]."""
    start, names = os.path.basename(beginning), []
    with contextlib.suppress(PermissionError):                      # one may write there and not look
        names = os.listdir(folder)
    for path in [os.path.join(folder, n) for n in names if n.startswith(start) and n.endswith(PARTIAL_SUFFIX)]:
        # Locked, just renamed, another user's, or on a file system that cannot tell: it stays.
        with contextlib.suppress(OSError):
            if fcntl is None:
                os.unlink(path)
                continue
            handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(handle)


def sync_folder(folder):
    """Bring the new name itself to the disk, where the system can and lets us."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:                         # a folder in which one may write and not look
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):       # what network file systems say of folders
            raise
    finally:
        os.close(handle)

"""Compiled objects in a folder of the user's own, one file each, found again by later processes."""
import errno
import hashlib
import os
import re
import stat
import struct
import time

REFERENCE_PREFIX = b"see "    # an entry that only says under which key the object is
OBJECT_KEY = re.compile("[0-9a-f]{64}")
warnings: list = []           # what is to be warned of, by the caller
# An entry is never waited for (a FIFO), and never somewhere else (a link).
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) \
    | getattr(os, "O_CLOEXEC", 0)


class ObjectCache:
    """Objects in a folder: a header with length and SHA-256, and the object.

    A file is written beside its place and moved there, so several processes see whole files or none. What is found will
    be run: it has to be a plain file that this user owns and no other user can write, in such a folder. A file that is
    not, or is damaged, counts as absent, and is written anew. Nothing that goes wrong here stops a program: it is said
    once, by the caller (`warnings`).
    """
    HEADER = struct.Struct("<8sQ32s")
    MAGIC = b"FLAMOBJ1"
    DAY = 86_400

    def __init__(self, folder, most):
        self.folder, self.most, self.said = folder, most, set()
        self.readable = self.writable = bool(folder) and self._open()
        self.trimmed = False

    def _open(self):
        """Whether the folder can be trusted."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            found = os.stat(self.folder)
        except OSError as error:
            self._say("folder", f"cannot be made ({error.strerror})")
            return False
        why = distrusted(found)
        if why:
            self._say("folder", why)
        return not why

    def read(self, key):
        """The object that was kept under `key`, or None; for one that was compiled with others, `see` and their key."""
        if not self.readable:
            return None
        try:
            handle = os.open(os.path.join(self.folder, key), OPEN_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say("read", f"cannot be read ({error.strerror})")
            return None
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            why = "is not a file" if not stat.S_ISREG(found.st_mode) else distrusted(found)
            if why:
                self._say("distrust", f"holds {key}, which {why} and is compiled anew")
                return None
            head = file.read(self.HEADER.size)
            fits = len(head) == self.HEADER.size and self.HEADER.unpack(head)[1] == found.st_size - self.HEADER.size
            code = file.read() if fits else b""
            if not fits or self._header(code) != head or code.startswith(REFERENCE_PREFIX) and referred(code) is None:
                self._say("damage", f"holds a damaged file, {key}, which is compiled anew")
                return None
            if time.time() - found.st_mtime > self.DAY and self.writable:
                self._touch(key)
        return code

    def _touch(self, key):
        """Note that `key` was used: the files that were not for longest are dropped first."""
        try:
            os.utime(os.path.join(self.folder, key))
        except OSError as error:                                   # another process has dropped it meanwhile
            if error.errno != errno.ENOENT:
                self._say("touch", f"holds a file whose time cannot be set ({error.strerror})")

    def write(self, key, code):
        """Keep the object `code` under `key`."""
        if not self.writable:
            return
        path = os.path.join(self.folder, key)
        beside = f"{path}.{os.urandom(6).hex()}"
        try:
            self._trim()
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(self._header(code) + code)
            os.replace(beside, path)
        except OSError as error:
            self.writable = False
            self._remove(beside)
            self._say("write", f"cannot be written ({error.strerror})")

    def distrust(self, key, error):
        """The object that was kept under `key` cannot be used."""
        self._say("link", f"holds a file that cannot be used, {key}, which is compiled anew ({error})")

    def _header(self, code):
        return self.HEADER.pack(self.MAGIC, len(code), hashlib.sha256(code).digest())

    def _trim(self):
        """Once in a process: drop the files that were not used for longest, if there are too many bytes."""
        if self.trimmed:
            return
        self.trimmed = True
        files = []
        for entry in os.scandir(self.folder):
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:                              # another process dropped it
                continue
            files.append((found.st_mtime, found.st_size, entry.path))
        size = sum(size for _, size, _ in files)
        if size > self.most:
            for _, freed, path in sorted(files):
                if size <= self.most * 3 // 4:
                    break
                self._remove(path)
                size -= freed

    def _remove(self, path):
        try:
            os.remove(path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._say("remove", f"holds a file that cannot be removed ({error.strerror})")

    def _say(self, what, how):
        if what not in self.said:
            self.said.add(what)
            warnings.append(f"the folder of compiled kernels, {self.folder}, {how}. What is not found there is "
                            "compiled again, which costs time, nothing else. FLAMBEAU_CACHE_DIR names another folder; "
                            "empty, it does without.")


def distrusted(found):
    """Why a file or folder with the status `found` may hold what another user wants to be run; empty if it cannot."""
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        return "belongs to another user"
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o022:
        return "can be written by other users (chmod go-w helps)"
    return ""


def referred(code):
    """The key that an entry `see …` refers to: the name of a file in the same folder, or None."""
    found = OBJECT_KEY.fullmatch(code[len(REFERENCE_PREFIX):].decode("latin-1"))
    return found and found[0]

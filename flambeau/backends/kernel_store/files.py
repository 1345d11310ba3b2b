"""Files with code in them: opened that no other user could have written, whole or absent, and written so.

What is found in such a file is run. So it has to be a plain file, whose owner is trusted, and that no other user can
write. It begins with its form, a length and a SHA-256. It is written beside its place and moved there, so several
processes see whole files or none.
"""
import hashlib
import os
import stat
import struct
from contextlib import suppress

FILE_HEADER = struct.Struct("<8sQ32s")       # form; length of what follows, and its SHA-256
COMMON_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
# A file is never waited for (a FIFO), and never somewhere else (a link).
OPEN_FLAGS = COMMON_FLAGS | os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
WRITE_FLAGS = COMMON_FLAGS | os.O_WRONLY | os.O_CREAT | os.O_EXCL
OTHERS_BITS = 0o022                          # of a mode: the group and everybody can write
DISTRUST = "belongs to another user", "can be written by other users (chmod go-w helps)"


class Damaged(ValueError):
    """What a file holds is not whole, or of another form."""


def distrusted(found, owners=(), shared=0, words=DISTRUST):
    """Why a file or folder with the status `found` may hold what another user wants to be run; empty if it cannot.

    It may belong to this user or to one of `owners`, and be written by others as far as the bits `shared` of its mode
    allow it; `words` say that it is not so.
    """
    if os.name != "posix":
        return ""
    if found.st_uid not in (os.geteuid(), *owners):
        return words[0]
    return words[1] if stat.S_IMODE(found.st_mode) & OTHERS_BITS & ~shared else ""


def opened(path, distrust=distrusted):
    """The opened file at `path`; a ValueError says why it is none to be trusted: what `distrust` says of its status."""
    file = open(os.open(path, OPEN_FLAGS), "rb")
    found = os.fstat(file.fileno())
    why = distrust(found) if stat.S_ISREG(found.st_mode) else "is not a file"
    if why:
        file.close()
        raise ValueError(why)
    return file


def sealed(form, said):
    """The header of `said`, and `said`."""
    return FILE_HEADER.pack(form, len(said), hashlib.sha256(said).digest()) + said


def unsealed(file, form):
    """What was `sealed` at the beginning of an opened file."""
    head = file.read(FILE_HEADER.size)
    if len(head) == FILE_HEADER.size:
        found, length, sha = FILE_HEADER.unpack(head)
        if found == form and length <= os.fstat(file.fileno()).st_size - FILE_HEADER.size:
            said = file.read(length)
            if hashlib.sha256(said).digest() == sha:
                return said
    raise Damaged("is damaged")


def write_whole(path, mode, *parts):
    """Make the file at `path` of `parts`: whole, or not at all."""
    beside = f"{path}.{os.urandom(6).hex()}"
    try:
        with open(os.open(beside, WRITE_FLAGS, mode), "wb") as file:
            file.writelines(parts)
        os.replace(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.remove(beside)

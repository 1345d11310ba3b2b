"""Compiled objects in a folder of the user's own, one file each, found again by later processes."""
import os
import time

from ...base import settings
from ...base.errors import warn
from .files import Damaged, distrusted, opened, sealed, unsealed, write_whole
from .store import CacheTier, referred, refers

OBJECT_FORM = b"FLAMOBJ1"
DAY = 86_400                  # seconds
_warnings: list = []          # what is to be warned of, by the caller
_users = None                 # the folder that the settings named last


class ObjectCache(CacheTier):
    """Objects in a folder, a file each: see files.py.

    A file that cannot be trusted, or is damaged, counts as absent, and is written anew; the folder has to be this
    user's, too. Nothing that goes wrong here stops a program: it is said once, by the caller (`say_warnings`).
    """

    def __init__(self, folder, most):
        self.folder, self.most, self.said = folder, most, set()
        self.readable = self.writable = bool(folder) and self._open()
        self.trimmed = False

    def _open(self):
        """Whether the folder can be trusted."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            why = distrusted(os.stat(self.folder))
        except OSError as error:
            why = f"cannot be made ({error.strerror})"
        if why:
            self._say("folder", why)
        return not why

    def read(self, key, text=None):
        """The entry that was kept under `key`, or None."""
        if not self.readable:
            return None
        try:
            with opened(os.path.join(self.folder, key)) as file:
                entry, used = unsealed(file, OBJECT_FORM), os.fstat(file.fileno()).st_mtime
                if file.read(1) or refers(entry) and referred(entry) is None:
                    raise Damaged
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say("read", f"cannot be read ({error.strerror})")
            return None
        except Damaged:
            self._say("damage", f"holds a damaged file, {key}, which is compiled anew")
            return None
        except ValueError as why:
            self._say("distrust", f"holds {key}, which {why} and is compiled anew")
            return None
        if time.time() - used > DAY and self.writable:
            self._change(os.utime, key, "whose time cannot be set")      # it is not one of the first to be dropped
        return entry

    def write(self, key, entry):
        """Keep an entry under `key`."""
        if not self.writable:
            return
        try:
            self._trim()
            write_whole(os.path.join(self.folder, key), 0o600, sealed(OBJECT_FORM, entry))
        except OSError as error:
            self.writable = False
            self._say("write", f"cannot be written ({error.strerror})")

    def distrust(self, key, error):
        """The object that was kept under `key` cannot be used."""
        self._say("link", f"holds a file that cannot be used, {key}, which is compiled anew ({error})")

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
            files.append((found.st_mtime, found.st_size, entry.name))
        size = sum(size for _, size, _ in files)
        if size > self.most:
            for _, freed, name in sorted(files):
                if size <= self.most * 3 // 4:
                    break
                self._change(os.remove, name, "that cannot be removed")
                size -= freed

    def _change(self, change, name, otherwise):
        try:
            change(os.path.join(self.folder, name))
        except FileNotFoundError:                                  # another process dropped it
            pass
        except OSError as error:
            self._say(otherwise, f"holds a file {otherwise} ({error.strerror})")

    def _say(self, what, how):
        if what not in self.said:
            self.said.add(what)
            _warnings.append(f"the folder of compiled kernels, {self.folder}, {how}. What is not found there is "
                             "compiled again, which costs time, nothing else. FLAMBEAU_CACHE_DIR names another folder; "
                             "empty, it does without.")


def users_folder():
    """The ObjectCache of the user's folder, as the settings are now."""
    global _users
    if _users is None or (_users.folder, _users.most) != (settings.object_dir, settings.object_bytes):
        _users = ObjectCache(settings.object_dir, settings.object_bytes)
    return _users


def say_warnings():
    """Warn of what went wrong in such folders."""
    while _warnings:
        warn(_warnings.pop(0))

"""From LLVM text to machine code in this process, and a cache of compiled objects on disk.

`function(name, text)` gives the address of `name` in `text`. The text is taken as it is (the renderer writes vector
code with invariants hoisted): no passes over the IR, only LLVM's code generation. What was compiled once is found
again: in this process by its text, and in later processes by the object file in the cache folder.

Measured for a kernel of 90 lines, LLVM 22, milliseconds of processor time: parse 0.3, verify 0.1, generate code 3.8 (at
level 1, 2 or 3 alike; 1.8 at level 0, which leaves everything on the stack), any pass over the IR 1 more, the
pipeline of -O1 12 more. Placing an object: 0.1 with ORC, 1.7 with an MCJIT engine. Kernels compiled together save 0.9
each.

Note [Undisturbed]: an interrupt between two calls of LLVM would leave a library half made, or free one that is in use,
and a signal handler may compute. So LLVM works on a thread of its own, where neither comes: whoever asked waits, and if
an interrupt ends the waiting, the work is finished all the same and found by the next who asks.
"""
import errno
import hashlib
import itertools
import os
import stat
import struct
import threading
import time

from ..base import settings
from ..base.errors import warn

PIPELINE = 1                  # part of every object's key: raise it when the way of compiling below changes

compiled = 0                  # texts that LLVM compiled in this process
loaded = 0                    # texts whose object came from the disk

_lock = threading.RLock()     # one thread at a time asks LLVM
_host = None                  # LLVM, once somebody asked
_libraries: dict = {}         # key of a text (or of several) → the library in memory that its object became
_addresses: dict = {}         # (key of a text, name) → address
_said: list = []              # what is to be warned of, by whoever asked

if hasattr(os, "register_at_fork"):       # no fork in the middle of a compilation: the child could not finish it
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def function(name, text, symbols=None):
    """The address of `name` in the LLVM module `text` (written without triple and layout), compiled for this machine.

    `symbols` gives the addresses of functions that the text only declares; others are looked up in the process. An
    address written into the text would make it another text in every process, never to be found on the disk.
    """
    return functions({name: text}, symbols)[name]


def functions(texts, symbols=None):
    """{name: text} to {name: address}. Texts that have to be compiled are compiled together, which is quicker.

    So what a text defines beside its function has to be internal or private.
    """
    host = _the_host()
    keys = {name: host.key(text) for name, text in texts.items()}
    if any((key, name) not in _addresses for name, key in keys.items()):
        undisturbed(_place, texts, keys, symbols)
        while _said:
            warn(_said.pop(0))
    return {name: _addresses[key, name] for name, key in keys.items()}


def undisturbed(work, *args):
    """What `work(*args)` gives. No interrupt and no signal handler comes in the middle; see Note [Undisturbed]."""
    if _lock._is_owned():                                         # a finaliser, in the middle of such work
        return work(*args)
    done: list = []

    def body():
        try:
            with _lock:
                done.append((work(*args), None))
        except BaseException as error:                            # raised again below, in the thread that asked
            done.append((None, error))

    thread = threading.Thread(target=body, name="flambeau-llvm")
    try:
        thread.start()
    except RuntimeError:                                          # no more threads, or Python is on its way out
        body()
    else:
        thread.join()
    made, error = done.pop()
    try:
        if error is not None:
            raise error
    finally:
        error = None                          # a frame that holds its own error would keep the tensors in it alive
    return made


def _place(texts, keys, symbols):
    """Put the machine code of `texts` in memory, and note the addresses."""
    global compiled
    host = _the_host()
    missing = {keys[name]: text for name, text in texts.items() if not _find(keys[name], symbols)}
    if missing:
        code = host.compile(missing.values())
        compiled += len(missing)
        whole = hashlib.sha256("".join(missing).encode()).hexdigest() if len(missing) > 1 else next(iter(missing))
        _libraries.update(dict.fromkeys([whole, *missing], host.place(code, symbols)))
        host.disk.write(whole, code)
        for key in missing if len(missing) > 1 else ():
            host.disk.write(key, SEE + whole.encode())
    for name, key in keys.items():
        if (key, name) not in _addresses:
            _addresses[key, name] = host.address(_libraries[key], name)


def assembly(text):
    """What the processor runs for `text`, in assembly language."""
    host = _the_host()
    return undisturbed(lambda: host.machine.emit_assembly(host.parse(text, host.llvm.create_context())))


def vector_bytes():
    """The bytes of this machine's widest vectors."""
    features = _the_host().features
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


def renew_disk():
    """Look again at which folder the objects are kept in, and how many bytes of them."""
    with _lock:
        if _host is not None:
            _host.disk = Disk(settings.object_dir, settings.object_bytes)
    while _said:
        warn(_said.pop(0))


def _find(key, symbols):
    """Whether the object of `key` is in memory, if need be from the disk."""
    global loaded
    if key not in _libraries:
        code, whole = _host.disk.read(key), key
        if code and code.startswith(SEE):                         # compiled together with others
            whole = code[len(SEE):].decode()
            code = None if whole in _libraries else _host.disk.read(whole)
        if code:
            _libraries[whole] = _host.place(code, symbols)
        if whole in _libraries:
            _libraries[key] = _libraries[whole]
            loaded += 1
    return key in _libraries


def _the_host():
    if _host is None:
        undisturbed(_start)
    return _host


def _start():
    global _host
    _host = _host or Host()


class NoCompiler(ImportError):
    """There is no LLVM here that could be loaded."""


class Host:
    """LLVM, set up for the machine that this process runs on."""

    def __init__(self):
        try:
            import llvmlite
            import llvmlite.binding as llvm
        except (ImportError, OSError) as error:
            raise NoCompiler(f"llvmlite, which compiles kernels, cannot be imported: {error}") from error

        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target, cpu = llvm.Target.from_default_triple(), llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features()
        flat = self.features.flatten()
        # small and position-independent: an object's parts lie side by side, what it calls is reached through a table
        self.machine = target.create_target_machine(cpu=cpu, features=flat, opt=2, reloc="pic", codemodel="small")
        self.head = f'target triple = "{target.triple}"\ntarget datalayout = "{self.machine.target_data}"\n'
        self.kind = "\0".join((f"{PIPELINE} {llvmlite.__version__} {llvm.llvm_version_info}", target.triple, cpu, flat))
        self.jit = llvm.create_lljit_compiler(self.machine, use_jit_link=os.name != "nt")
        self.disk = Disk(settings.object_dir, settings.object_bytes)
        self.numbers = itertools.count()

    def key(self, text):
        """Under which name the object of `text` is kept."""
        return hashlib.sha256(f"{self.kind}\0{text}".encode()).hexdigest()

    def parse(self, text, context):
        """The module of `text`. Verified, because LLVM ends the process over a module that makes no sense."""
        module = self.llvm.parse_assembly(self.head + text, context)
        module.verify()
        return module

    def compile(self, texts):
        """One object of all `texts`."""
        context = self.llvm.create_context()
        first, *others = [self.parse(text, context) for text in texts]
        for other in others:
            first.link_in(other)
        return self.machine.emit_object(first)

    def place(self, code, symbols):
        """Put the object `code` in memory; gives the name of the library it became."""
        library = self.llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in (symbols or {}).items():
            library.import_symbol(name, address)
        held = library.link(self.jit, f"library{next(self.numbers)}")
        held.detach()                       # never freed: a thread may be running it, even while Python exits
        return held.name

    def address(self, library, name):
        """Where `name` of a library is."""
        held = self.jit.lookup(library, name)
        address = held[name]
        held.detach()
        return address


SEE = b"see "                 # an entry that only says under which key the object is


class Disk:
    """Objects in a folder of the user's own, one file each: a header with length and SHA-256, and the object.

    A file is written beside its place and moved there, so several processes see whole files or none. A damaged file
    counts as absent, and is written anew. Nothing that goes wrong here stops anybody: it is said once.
    """
    HEADER = struct.Struct("<8sQ32s")
    MAGIC = b"FLAMOBJ1"
    DAY = 86_400

    def __init__(self, folder, most):
        self.folder, self.most, self.said = folder, most, set()
        self.readable = self.writable = bool(folder) and self._open()
        self.trimmed = False

    def _open(self):
        """Whether the folder can be trusted: what is in it will be run."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            found = os.stat(self.folder)
        except OSError as error:
            self._say("folder", f"cannot be made ({error.strerror})")
            return False
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            self._say("folder", "belongs to another user")
            return False
        if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o022:
            self._say("folder", "can be written by other users (chmod go-w helps)")
            return False
        return True

    def read(self, key):
        """The object that was kept under `key`, or None."""
        if not self.readable:
            return None
        path = os.path.join(self.folder, key)
        try:
            with open(path, "rb") as file:
                whole = file.read()
                if time.time() - os.fstat(file.fileno()).st_mtime > self.DAY and self.writable:
                    os.utime(path)                                 # the oldest by use are dropped
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say("read", f"cannot be read ({error.strerror})")
            return None
        code = whole[self.HEADER.size:]
        if len(whole) < self.HEADER.size or self._header(code) != whole[:self.HEADER.size]:
            self._say("damage", f"holds a damaged file, {key}, which is compiled anew")
            return None
        return code

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
            _said.append(f"the folder of compiled kernels, {self.folder}, {how}. What is not found there is compiled "
                         "again, which costs time, nothing else. FLAMBEAU_CACHE_DIR names another folder; empty, it "
                         "does without.")

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
from .processor import choose

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

    So what a text defines beside its function has to be internal or private. Where some cannot be compiled or linked,
    all others are, and NotCompiled says which.
    """
    host = _the_host()
    keys = {name: host.key(text) for name, text in texts.items()}
    if any((key, name) not in _addresses for name, key in keys.items()):
        failed = undisturbed(_place, texts, keys, symbols)
        while _said:
            warn(_said.pop(0))
        if failed:
            raise NotCompiled(failed)
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
    """Put the machine code of `texts` in memory, and note the addresses. Gives {name: why} of those that failed.

    Nothing is noted, in memory or on the disk, before its symbols were looked up: that is when LLVM links an object,
    and finds that it calls something which is not there. A batch with such a text in it is compiled one by one.
    """
    missing, failed = {}, {}
    for name, key in keys.items():
        if (key, name) not in _addresses and not _find(key, name, symbols):
            missing[name] = key
    if len(missing) > 1:
        failed = _compile(missing, texts, symbols)
    if failed or len(missing) == 1:
        failed = {}
        for name, key in missing.items():
            failed |= _compile({name: key}, texts, symbols)
    return failed


def _compile(missing, texts, symbols):
    """Compile the texts of `missing`, {name: key}, as one object and note it; or give {name: why} for all of them."""
    global compiled
    host, names = _the_host(), {}
    for name, key in missing.items():
        names.setdefault(key, []).append(name)                    # a text may be asked for by several names
    try:
        code = host.compile([texts[some[0]] for some in names.values()])
        library = host.place(code, symbols)
        addresses = {(key, name): host.address(library, name) for name, key in missing.items()}
    except (RuntimeError, OSError) as error:                      # LLVM's; what is out of memory goes on
        return dict.fromkeys(missing, str(error))
    compiled += len(names)
    whole = hashlib.sha256("".join(names).encode()).hexdigest() if len(names) > 1 else next(iter(names))
    _libraries.update(dict.fromkeys([whole, *names], library))
    _addresses.update(addresses)
    host.disk.write(whole, code)
    for key in names if len(names) > 1 else ():
        host.disk.write(key, SEE + whole.encode())
    return {}


def assembly(text):
    """What the processor runs for `text`, in assembly language."""
    host = _the_host()
    return undisturbed(lambda: host.machine.emit_assembly(host.parse(text, host.llvm.create_context())))


def processor():
    """What code is compiled for (see processor.py)."""
    return _the_host().processor


def target():
    """What the text of a kernel has to know of it."""
    return _the_host().target


def llvm_version():
    """Which LLVM compiles."""
    return ".".join(map(str, _the_host().llvm.llvm_version_info))


def vector_bytes():
    """The bytes of the widest vectors."""
    return _the_host().target.vector_bytes


def check_processor(text):
    """Refuse, with a ValueError, a processor that kernels cannot be compiled for here."""
    _the_host().chosen(text)


def renew_processor():
    """Look again at which processor code is compiled for; what was compiled stays as it is."""
    with _lock:
        if _host is not None:
            _host.aim(settings.cpu)


def renew_disk():
    """Look again at which folder the objects are kept in, and how many bytes of them."""
    with _lock:
        if _host is not None:
            _host.disk = Disk(settings.object_dir, settings.object_bytes)
    while _said:
        warn(_said.pop(0))


def _find(key, name, symbols):
    """Whether `name` of the object of `key` is in memory, if need be from the disk; then its address is noted."""
    global loaded
    library, whole, code = _libraries.get(key), key, None
    if library is None:
        code = _host.disk.read(key)
        if code and code.startswith(SEE):                         # compiled together with others
            whole = code[len(SEE):].decode()
            library = _libraries.get(whole)
            code = _host.disk.read(whole) if library is None else None
    try:
        if code:
            library = _host.place(code, symbols)
        if library is None:
            return False
        address = _host.address(library, name)
    except (RuntimeError, OSError) as error:
        _host.disk.distrust(key, error)
        return False
    loaded += key not in _libraries
    _libraries[whole] = _libraries[key] = library
    _addresses[key, name] = address
    return True


def _the_host():
    if _host is None:
        undisturbed(_start)
    return _host


def _start():
    global _host
    _host = _host or Host()


class NoCompiler(ImportError):
    """There is no LLVM here that could be loaded."""


class NotCompiled(RuntimeError):
    """Some texts could not be compiled, or linked; `failed` is {name: what LLVM says}."""

    def __init__(self, failed):
        self.failed = failed
        super().__init__("\n".join(dict.fromkeys(failed.values())))


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
        self.version = f"{PIPELINE} {llvmlite.__version__} {llvm.llvm_version_info}"
        self.features = llvm.get_host_cpu_features()
        self.aim(settings.cpu)
        self.jit = llvm.create_lljit_compiler(self.machine, use_jit_link=os.name != "nt")
        self.disk = Disk(settings.object_dir, settings.object_bytes)
        self.numbers = itertools.count()

    def chosen(self, text):
        """The Processor that `text` names, on this machine."""
        return choose(text, self.llvm.get_default_triple(), self.llvm.get_host_cpu_name(), self.features)

    def aim(self, text):
        """Compile for the processor that `text` names from now on."""
        self.processor = goal = self.chosen(text)
        self.target = goal.target
        # small and position-independent: an object's parts lie side by side, what it calls is reached through a table
        self.machine = self.llvm.Target.from_triple(goal.triple).create_target_machine(
            cpu=goal.cpu, features=goal.flags, opt=2, reloc="pic", codemodel="small")
        self.head = f'target triple = "{goal.triple}"\ntarget datalayout = "{self.machine.target_data}"\n'
        self.kind = "\0".join((self.version, goal.triple, goal.cpu, goal.flags))

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
            _said.append(f"the folder of compiled kernels, {self.folder}, {how}. What is not found there is compiled "
                         "again, which costs time, nothing else. FLAMBEAU_CACHE_DIR names another folder; empty, it "
                         "does without.")

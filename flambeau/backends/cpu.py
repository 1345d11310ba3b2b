"""From LLVM text to machine code in this process, and a cache of compiled objects on disk.

`function(name, text)` gives the address of `name` in `text`. The text is taken as it is (the renderer writes vector
code with invariants hoisted): no passes over the IR, only LLVM's code generation. What was compiled once is found
again: in this process by its text, and in later processes by the object file in the cache folder.

Measured for a kernel of 90 lines, LLVM 22, milliseconds of processor time: parse 0.3, verify 0.1, generate code 3.8 (at
level 1, 2 or 3 alike; 1.8 at level 0, which leaves everything on the stack), any pass over the IR 1 more, the
pipeline of -O1 12 more. Placing an object: 0.1 with ORC, 1.7 with an MCJIT engine. Kernels compiled together save 0.9
each.

LLVM works on a thread of its own; see Note [Undisturbed] in undisturbed.py. It ends the process when it is refused
memory, so room is looked for before it is asked.
"""
import hashlib
import itertools
import os

from ..base import settings
from ..base.errors import warn
from .disk import SEE, Disk, referred, warnings
from .memory import has_room, words
from .undisturbed import lock as _lock, undisturbed

PIPELINE = 1                  # part of every object's key: raise it when the way of compiling below changes
START_BYTES = 64 << 20        # room for LLVM to set itself up: measured 23 MiB with the first kernel
COMPILE_BYTES = 32 << 20      # room for a kernel, and for each of its characters: measured 3 MiB for 79,000
BYTES_PER_CHARACTER = 256

compiled = 0                  # texts that LLVM compiled in this process
loaded = 0                    # texts whose object came from the disk

_host = None                  # LLVM, once somebody asked
_libraries: dict = {}         # key of a text (or of several) → the library in memory that its object became
_addresses: dict = {}         # (key of a text, name) → address


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
        while warnings:
            warn(warnings.pop(0))
    return {name: _addresses[key, name] for name, key in keys.items()}


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
    while warnings:
        warn(warnings.pop(0))


def _find(key, symbols):
    """Whether the object of `key` is in memory, if need be from the disk."""
    global loaded
    if key not in _libraries:
        code, whole = _host.disk.read(key), key
        if code and code.startswith(SEE):                         # compiled together with others
            whole = referred(code)
            code = None if whole in _libraries else _host.disk.read(whole)
        if code and not code.startswith(SEE):
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


def _need_room(nbytes):
    """Refuse where LLVM might be refused `nbytes` of memory: it would end the process."""
    if not has_room(nbytes):
        raise MemoryError(f"LLVM needs up to {words(nbytes)} to compile a kernel, and there is less")


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

        _need_room(START_BYTES)
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
        _need_room(COMPILE_BYTES + BYTES_PER_CHARACTER * sum(map(len, texts)))
        context = self.llvm.create_context()
        first, *others = [self.parse(text, context) for text in texts]
        for other in others:
            first.link_in(other)
        return self.machine.emit_object(first)

    def place(self, code, symbols):
        """Put the object `code` in memory; gives the name of the library it became."""
        _need_room(COMPILE_BYTES + BYTES_PER_CHARACTER * len(code))
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

"""From LLVM text to machine code in this process, and a cache of compiled objects on disk.

`function(name, text)` gives the address of `name` in `text`. The text is taken as it is (the renderer writes vector
code with invariants hoisted): no passes over the IR, only LLVM's code generation. What was compiled once is found
again: in this process by its text, and in later processes by the object file in the cache folder. The library's own
texts were compiled before any were asked for: see Note [Packaged kernels] in kernel_store/packaged.py.

Measured for a kernel of 90 lines, LLVM 22, milliseconds of processor time: parse 0.3, verify 0.1, generate code 3.8 (at
level 1, 2 or 3 alike; 1.8 at level 0, which leaves everything on the stack), any pass over the IR 1 more, the
pipeline of -O1 12 more. Placing an object: 0.1 with ORC, 1.7 with an MCJIT engine. Kernels compiled together save 0.9
each; many of them are shared out to all processors (`_shares`), an object each. A pass of code generation itself is
left out, loop strength reduction: it took a quarter to a half of the time, and no kernel was quicker for it (a maximum
over windows was, by 9 %).

Note [Quickly, then well]: the steps of products and convolutions are long texts that spend little time in their own
code: they call innermost kernels. At level 0 LLVM takes a sixth of the time for them. So the first call gets that, and
it hands over to a better one, with the same bits, which is compiled as soon as LLVM has nothing else to do. A text that
was compiled well before, be it with the package, needs none of that. (The runtime, runtime.py, stays as it is:
it was slower by 10 ns a step.)

LLVM works on a thread of its own; see Note [Undisturbed] in compile_thread.py. It ends the process when it is refused
memory, so room is looked for before it is asked.
"""
import ctypes
import hashlib
import itertools
import os
from functools import partial

from ...base import settings
from ...base.errors import warn
from ...base.locks import new_lock
from ...loops.step import STEP_ARGUMENTS
from ..backend import NoCompiler, NotCompiled
from ..cpu_quota import dealt_out, processors, quota
from ..kernel_store.object_cache import REFERENCE_PREFIX, ObjectCache, referred, warnings
from ..kernel_store.packaged import NoPackagedKernels, PackagedKernels
from ..kernel_store.precompiled import PrecompiledHost, key_of
from .compile_thread import (
    beforehand,
    do_idle_work,
    is_through,
    lock as _lock,
    side_by_side,
    undisturbed,
    when_idle,
)
from .memory.allocator import bytes_in_words, has_room
from .processor import choose

PIPELINE_VERSION = 2             # part of every object's key: raise it when the way of compiling below changes
LLVM_START_BYTES = 64 << 20      # room for LLVM to set itself up: measured 23 MiB with the first kernel
KERNEL_COMPILE_BYTES = 32 << 20  # room for a kernel, and for each of its characters: measured 3 MiB for 79,000
COMPILE_BYTES_PER_CHARACTER = 256
SHARE_CHARACTERS = 4096          # of LLVM text that are worth a thread: some 8 milliseconds

QUICK_MARK = "; quickly\n"    # how a text begins that is compiled at level 0

compiled = 0                  # texts that LLVM compiled in this process, for a caller that asked
loaded = 0                    # texts whose object came from the disk or the package, for a caller that asked

_host = None                  # LLVM, once it was asked for
_libraries: dict = {}         # key of a text (or of several) → the library in memory that its object became
_addresses: dict = {}         # (key of a text, name) → address


def function(name, text, symbols=None, asked=True):
    """The address of `name` in the LLVM module `text` (written without triple and layout), compiled for this machine.

    `symbols` gives the addresses of functions that the text only declares; others are looked up in the process. An
    address written into the text would make it another text in every process, never to be found on the disk.
    `asked`: whether it counts as `compiled` or `loaded`, because a caller waits for it.
    """
    return functions({name: text}, symbols, asked)[name]


def functions(texts, symbols=None, asked=True):
    """{name: text} to {name: address}. Texts that have to be compiled are compiled together, which is quicker.

    So what a text defines beside its function has to be internal or private. Where some cannot be compiled or linked,
    all others are, and NotCompiled says which.
    """
    host = _the_host()
    keys = {name: host.key(text) for name, text in texts.items()}
    if any((key, name) not in _addresses for name, key in keys.items()):
        failed = undisturbed(_place, texts, keys, symbols, asked)
        while warnings:
            warn(warnings.pop(0))
        if failed:
            raise host.failure(failed)
    return {name: _addresses[key, name] for name, key in keys.items()}


def are_ready(texts):
    """Whether {name: text} were compiled, or no thread is about to."""
    host = _the_host()
    return is_through() or all((host.key(text), name) in _addresses for name, text in texts.items())


def not_found(texts):
    """Those of {name: text} that are neither in memory nor on the disk nor in the package."""
    host = _the_host()
    keys = {name: host.key(text) for name, text in texts.items()}
    return undisturbed(_look, texts, keys, None, True) if any((key, name) not in _addresses
                                                              for name, key in keys.items()) else {}


def _look(texts, keys, symbols, asked):
    """Those of {name: text} that are not found; the others are in memory then."""
    return {name: texts[name] for name, key in keys.items()
            if (key, name) not in _addresses and not _find(key, name, texts[name], symbols, asked)}


def prepare(texts):
    """Have {name: text} compiled in the background, one by one; `functions` then finds them."""
    host = _the_host()
    for name, text in texts.items():
        beforehand(_place, {name: text}, {name: host.key(text)}, None)


def make_ready(texts, quickly=()):
    """What `prepare` does, for {name: text} that were not asked for yet: it does not count. Those whose names are in
    `quickly` are looked for, and compiled as `replaceable` does it."""
    for name, text in texts.items():
        beforehand(_make_ready, name, text, name in quickly)


def _make_ready(name, text, quickly):
    host = _the_host()
    if _look({name: text}, {name: host.key(text)}, None, False):
        if quickly:
            name, _, text = quick_text(name, text)
        _place({name: text}, {name: host.key(text)}, None, False)


def replaceable(name, text):
    """The address of a step that does what `name` of `text` does: at once if it was compiled before, else as quickly as
    it can be compiled, and later well. See Note [Quickly, then well]."""
    if not not_found({name: text}):
        return function(name, text)
    quick, slot, written = quick_text(name, text)
    found = functions(dict.fromkeys((quick, slot), written))
    when_idle(_improve, found[slot], name, text, processor())
    return found[quick]


def quick_text(name, text):
    """A text compiled quickly that does what `name` of `text` does, until an address stands in its variable: the name
    of its function, that of the variable, and the text."""
    quick, slot = f"{name}_quick", f"{name}_better"
    return quick, slot, f"""{QUICK_MARK}@{slot} = global ptr null
define void @{quick}({STEP_ARGUMENTS}) {{
  %better = load atomic ptr, ptr @{slot} monotonic, align 8
  %none = icmp eq ptr %better, null
  %step = select i1 %none, ptr @{name}, ptr %better
  call void %step({STEP_ARGUMENTS})
  ret void
}}
{text.replace(f"define void @{name}(", f"define internal void @{name}(")}"""


def _improve(slot, name, text, goal):
    """Compile `text` well, and put the address of its `name` at the address `slot`."""
    key = _host.key(text)
    if goal == processor() and not _place({name: text}, {name: key}, None, asked=False):
        ctypes.c_void_p.from_address(slot).value = _addresses[key, name]


def _place(texts, keys, symbols, asked=True):
    """Put the machine code of `texts` in memory, and note the addresses. Gives {name: why} of those that failed.

    Nothing is noted, in memory or on the disk, before its symbols were looked up: that is when LLVM links an object,
    and finds that it calls something which is not there. A batch with such a text in it is compiled one by one.
    """
    missing, failed = {name: keys[name] for name in _look(texts, keys, symbols, asked)}, {}
    for quickly in (True, False):
        batch = {name: key for name, key in missing.items() if texts[name].startswith(QUICK_MARK) is quickly}
        again = _compile(_shares(batch, texts), texts, symbols, asked)
        failed |= _compile([{name: batch[name]} for name in again], texts, symbols, asked)
    return failed


def _shares(batch, texts):
    """{name: key} in parts that are compiled at once, an object each. A text may be asked for by several names, which
    stay together."""
    named = {key: texts[name] for name, key in batch.items()}
    worth = 1 + sum(map(len, named.values())) // SHARE_CHARACTERS
    parts = dealt_out(named, min(processors(), quota(), settings.num_threads or worth, worth))
    return [{name: key for name, key in batch.items() if key in part} for part in parts]


def _compile(parts, texts, symbols, asked):
    """Compile the texts of each of `parts`, {name: key}, as one object and note it; or give {name: why} for all of
    it."""
    host, failed = _the_host(), {}
    codes = side_by_side([partial(_emit, part, texts) for part in parts], len(parts))
    for part, (code, why) in zip(parts, codes, strict=True):
        why = why or _note(host, part, code, symbols, asked)
        if why:
            failed |= dict.fromkeys(part, why)
    return failed


def _emit(part, texts):
    """(the object of a part, None), or None and why there is none."""
    try:
        return _the_host().compile([texts[name] for name in {key: name for name, key in part.items()}.values()]), None
    except (RuntimeError, OSError) as error:                      # LLVM's; what is out of memory goes on
        return None, str(error)


def _note(host, part, code, symbols, asked):
    """Put the object of a part in memory and on the disk, and note where its functions are; gives why it cannot be."""
    global compiled
    try:
        library = host.place(code, symbols)
        addresses = {(key, name): host.address(library, name) for name, key in part.items()}
    except (RuntimeError, OSError) as error:
        return str(error)
    keys = dict.fromkeys(part.values())
    compiled += asked and len(keys)
    whole = hashlib.sha256("".join(keys).encode()).hexdigest() if len(keys) > 1 else next(iter(keys))
    _libraries.update(dict.fromkeys([whole, *keys], library))
    _addresses.update(addresses)
    host.disk.write(whole, code)
    for key in keys if len(keys) > 1 else ():
        host.disk.write(key, REFERENCE_PREFIX + whole.encode())
    return ""


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
    """Which LLVM compiles, or did beforehand."""
    return _the_host().llvm_version()


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
        if _host is not None and not settings.precompiled:
            _host.disk = ObjectCache(settings.object_dir, settings.object_bytes)
    while warnings:
        warn(warnings.pop(0))


def leave_packaged_kernels():
    """Use no kernels that came with the package from now on: Note [Packaged kernels] in kernel_store/packaged.py."""
    _the_host().packaged = NoPackagedKernels()


def packaged_kernels():
    """Which kernels came with the package, in words."""
    return _the_host().packaged.described()


def origin_of(words):
    """What a text is written from: the words of a launch, or for a function of the library, and the target in use."""
    return f"{words}\n{tuple(target())}"


def packaged_functions(words, asked=True):
    """{words: address} of those that came with the package, as they would be written now from these `words`; see Note
    [Packaged kernels]. None of their texts has to be written."""
    source = _the_host().packaged
    known = {each: found for each in words if (found := source.function(origin_of(each)))}
    return undisturbed(_find_packaged, source, known, asked) if known else {}


def _find_packaged(source, known, asked):
    """{words: address} of {words: (name, object)} of PackagedKernels, as far as they can be put in memory."""
    global loaded
    found = {}
    for words, (name, whole) in known.items():
        try:
            if whole not in _libraries and (code := source.read(whole)):
                _libraries[whole] = _host.place(code, None)
            if whole in _libraries:
                found[words] = _host.address(_libraries[whole], name)
        except (RuntimeError, OSError) as error:
            source.distrust(whole, error)
            return {}
    loaded += asked and len(found)
    return found


def _find(key, name, text, symbols, asked):
    """Whether `name` of the object of `text`, with that key, is in memory, if need be from the disk or the package;
    then its address is noted."""
    global loaded
    library, whole, code, source = _libraries.get(key), key, None, _host.disk
    if library is None:
        code = _host.disk.read(key)
        if code and code.startswith(REFERENCE_PREFIX):            # compiled together with others
            whole = referred(code)
            library = _libraries.get(whole)
            code = _host.disk.read(whole) if library is None else None
        if library is None and not code:
            source = _host.packaged
            whole = source.whole(text) or key
            library = _libraries.get(whole)
            code = source.read(whole) if whole != key and library is None else None
    try:
        if code and not code.startswith(REFERENCE_PREFIX):
            library = _host.place(code, symbols)
        if library is None:
            return False
        address = _host.address(library, name)
    except (RuntimeError, OSError) as error:
        source.distrust(key, error)
        return False
    loaded += asked and key not in _libraries
    _libraries[whole] = _libraries[key] = library
    _addresses[key, name] = address
    return True


def host():
    """What compiles, or has compiled beforehand."""
    return _the_host()


def _the_host():
    if _host is None:
        undisturbed(_start)
    return _host


def _start():
    global _host
    _host = _host or (PrecompiledHost(settings.precompiled) if settings.precompiled else HostLLVM())


def finish_improving():
    """Have everything compiled well that was compiled quickly; see Note [Quickly, then well]."""
    if _host is not None:
        undisturbed(do_idle_work)


def _need_room(nbytes):
    """Refuse where LLVM might be refused `nbytes` of memory: it would end the process."""
    if not has_room(nbytes):
        raise MemoryError(f"LLVM needs up to {bytes_in_words(nbytes)} to compile a kernel, and there is less")


class OptionHeld:
    """An option of LLVM that holds while some thread is inside. LLVM's options are the process's, so it is put back
    after the last: another library may compile here, Numba for one."""

    def __init__(self, llvm, on, off):
        self.llvm, self.on, self.off, self.inside, self.lock = llvm, on, off, 0, new_lock()

    def __enter__(self):
        with self.lock:
            if not self.inside:
                self.llvm.set_option("", self.on)
            self.inside += 1

    def __exit__(self, *_):
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.llvm.set_option("", self.off)


class HostLLVM:
    """LLVM, set up for the machine that this process runs on."""

    failure = NotCompiled

    def __init__(self):
        try:
            import llvmlite
            import llvmlite.binding as llvm
        except (ImportError, OSError) as error:
            raise NoCompiler(f"llvmlite, which compiles kernels, cannot be imported: {error}") from error

        _need_room(LLVM_START_BYTES)
        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.version = f"{PIPELINE_VERSION} {llvmlite.__version__} {llvm.llvm_version_info}"
        self.features = llvm.get_host_cpu_features()
        self.aim(settings.cpu)
        self.jit = llvm.create_lljit_compiler(self.machine, use_jit_link=os.name != "nt")
        self.disk = ObjectCache(settings.object_dir, settings.object_bytes)
        self.numbers = itertools.count()
        self.without_strength_reduction = OptionHeld(llvm, "-disable-lsr", "-disable-lsr=false")

    def chosen(self, text):
        """The Processor that `text` names, on this machine."""
        return choose(text, self.llvm.get_default_triple(), self.llvm.get_host_cpu_name(), self.features)

    def aim(self, text):
        """Compile for the processor that `text` names from now on."""
        self.aim_at(self.chosen(text))
        self.packaged = PackagedKernels(self.version, self.processor)

    def aim_at(self, goal):
        """Compile for the Processor `goal` from now on. What this machine lacks can be compiled for, and not be run."""
        self.processor, self.packaged = goal, NoPackagedKernels()
        self.target = goal.target
        self._idle_machines = {0: [], 2: []}
        self.machine = self._machine(2)
        self.head = f'target triple = "{goal.triple}"\ntarget datalayout = "{self.machine.target_data}"\n'
        self.kind = "\0".join((self.version, goal.triple, goal.cpu, goal.flags))

    def _machine(self, level):
        """What generates code at an optimisation level; one thread at a time may use it."""
        goal = self.processor
        # small and position-independent: an object's parts lie side by side, what it calls is reached through a table
        return self.llvm.Target.from_triple(goal.triple).create_target_machine(
            cpu=goal.cpu, features=goal.flags, opt=level, reloc="pic", codemodel="small")

    def llvm_version(self):
        """Which LLVM it is."""
        return ".".join(map(str, self.llvm.llvm_version_info))

    def key(self, text):
        """Under which name the object of `text` is kept."""
        return key_of(self.kind, text)

    def parse(self, text, context):
        """The module of `text`. Verified, because LLVM ends the process over a module that makes no sense."""
        module = self.llvm.parse_assembly(self.head + text, context)
        module.verify()
        return module

    def compile(self, texts):
        """One object of all `texts`, which are compiled alike. Several threads may do this at once."""
        _need_room(KERNEL_COMPILE_BYTES + COMPILE_BYTES_PER_CHARACTER * sum(map(len, texts)))
        context = self.llvm.create_context()
        first, *others = [self.parse(text, context) for text in texts]
        for other in others:
            first.link_in(other)
        level = 0 if texts[0].startswith(QUICK_MARK) else 2
        idle = self._idle_machines[level]
        try:
            machine = idle.pop()
        except IndexError:
            machine = self._machine(level)
        with self.without_strength_reduction:
            code = self._emit(machine, first)
        idle.append(machine)
        return code

    def _emit(self, machine, module):
        """The object of a module. llvmlite lets one thread at a time into LLVM; generating code is what takes the time,
        and shares nothing between contexts and target machines, so this one call goes past llvmlite's lock."""
        ffi = self.llvm.ffi
        emit = getattr(ffi.lib.LLVMPY_TargetMachineEmitToMemory, "_cfn", None)
        if emit is None:                                          # another llvmlite: one after the other, then
            return machine.emit_object(module)
        with ffi.OutputString() as said:
            buffer = emit(machine, module, 1, said)
            if not buffer:
                raise RuntimeError(str(said))
        try:
            return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)

    def place(self, code, symbols):
        """Put the object `code` in memory; gives the name of the library it became."""
        _need_room(KERNEL_COMPILE_BYTES + COMPILE_BYTES_PER_CHARACTER * len(code))
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


def get_cpu_capability():
    """What PyTorch answers under this module's name: see `library_switches`."""
    try:
        goal = processor()
    except NoCompiler:                            # then the processor was not asked
        return "DEFAULT"
    return capability(goal.triple, goal.on)


def capability(triple, features):
    """PyTorch's word for the most that a processor with `features` has, of those that PyTorch has kernels for."""
    if not triple.startswith("x86_64"):
        return "DEFAULT"                          # of Arm's, PyTorch's own packages name SVE of 256 bits alone
    if features >= {"avx512vl", "avx512bw", "avx512dq", "fma"}:
        return "AVX512"
    return "AVX2" if features >= {"avx2", "fma"} else "NO AVX"

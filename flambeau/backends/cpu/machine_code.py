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
import itertools
import os
from functools import partial

from ...base import settings
from ...base.locks import new_lock
from ...loops.step import STEP_ARGUMENTS
from ..backend import NoCompiler, NotCompiled
from ..cpu_quota import dealt_out, processors, quota
from ..kernel_store.object_cache import ObjectCache, say_warnings, users_folder
from ..kernel_store.packaged import PackagedKernels
from ..kernel_store.precompiled import PrecompiledHost
from ..kernel_store.store import KernelStore
from .compile_thread import (
    beforehand,
    do_idle_work,
    is_through,
    lock as _lock,
    side_by_side,
    undisturbed,
    wait_for_piece,
    when_idle,
)
from .memory.allocator import bytes_in_words, has_room
from .processor import choose

PIPELINE_VERSION = 2             # part of every object's key: raise it when the way of compiling below changes
LLVM_START_BYTES = 64 << 20      # room for LLVM to set itself up: measured 23 MiB with the first kernel
KERNEL_COMPILE_BYTES = 32 << 20  # room for a kernel, and for each of its characters: measured 3 MiB for 79,000
COMPILE_BYTES_PER_CHARACTER = 256
SHARE_CHARACTERS = 4096          # of LLVM text that are worth a thread: some 8 milliseconds
BACKGROUND_CHARACTERS = 1 << 16  # of LLVM text that are compiled in one go in the background, as one object

QUICK_MARK = "; quickly\n"    # how a text begins that is compiled at level 0

_in_background: dict = {}     # {name: text} of what is being compiled in the background
compiled = 0                  # texts that LLVM compiled in this process, for a caller that asked
loaded = 0                    # texts whose object came from the disk or the package, for a caller that asked

_host = None                  # LLVM, once it was asked for


def function(name, text, symbols=None, asked=True, quickly=False):
    """The address of `name` in the LLVM module `text` (written without triple and layout), compiled for this machine.

    `symbols` gives the addresses of functions that the text only declares; others are looked up in the process. An
    address written into the text would make it another text in every process, never to be found on the disk.
    `asked`: whether it counts as `compiled` or `loaded`, because a caller waits for it.
    `quickly`: it is a step, and one that is nowhere yet is compiled as Note [Quickly, then well] says.
    """
    return functions({name: text}, symbols, asked, [name] if quickly else ())[name]


def functions(texts, symbols=None, asked=True, quickly=()):
    """{name: text} to {name: address}. Texts that have to be compiled are compiled together, which is quicker.

    So what a text defines beside its function has to be internal or private. Where some cannot be compiled or linked,
    all others are, and NotCompiled says which. `quickly` are the names of those that are to be compiled so.
    """
    store = host().store
    keys = store.keys(texts)
    found = store.known(keys)
    if len(found) < len(texts):
        if not _in_background.keys().isdisjoint(texts.keys() - found):
            wait_for_piece()
        found, failed = undisturbed(_load, texts, symbols, asked, quickly, keys)
        say_warnings()
        if failed:
            raise host().failure(failed)
    return found


def are_ready(texts):
    """Whether {name: text} were compiled, or no thread is about to."""
    store = host().store
    return is_through() or len(store.known(store.keys(texts))) == len(texts)


def not_found(texts):
    """Those of {name: text} that are nowhere yet."""
    store = host().store
    keys = store.keys(texts)
    return undisturbed(_look, texts, keys, None, True) if len(store.known(keys)) < len(texts) else {}


def _look(texts, keys, symbols, asked):
    """Those of {name: text} that are not found; the others are in memory then."""
    global loaded
    store, left = _host.store, {}
    with _lock:
        for name, text in texts.items():
            key = keys[name]
            known = key in store.libraries
            if store.find(key, name, text, symbols) is None:
                left[name] = text
            else:
                loaded += asked and not known
    return left


def prepare(texts):
    """Have {name: text} compiled in the background; `functions` then finds them.

    Together, since a kernel compiled alone takes LLVM twice as long, and its thread has to be let in by Python as often
    for one as for many. Not all of a long plan in one go: a program that ends, or forks, waits for what has begun.
    """
    host()
    batch, length = {}, 0
    for name, text in texts.items():
        if batch and length + len(text) > BACKGROUND_CHARACTERS:
            beforehand(_load_in_background, batch)
            batch, length = {}, 0
        batch[name] = text
        length += len(text)
    if batch:
        beforehand(_load_in_background, batch)


def _load_in_background(texts):
    """See Note [In the background] in compile_thread.py."""
    try:
        _in_background.update(texts)
        _load(texts, parts=1)
    finally:
        _in_background.clear()


def make_ready(texts, quickly=()):
    """What `prepare` does, for {name: text} that were not asked for yet: it does not count."""
    host()
    for name, text in texts.items():
        beforehand(_load, {name: text}, None, False, quickly)


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
    if goal == processor():
        found, _ = _load({name: text}, asked=False)
        if found:
            ctypes.c_void_p.from_address(slot).value = found[name]


def _load(texts, symbols=None, asked=True, quickly=(), keys=None, parts=0):
    """Have the machine code of `texts` in memory: {name: address}, and {name: why} of those that failed. `parts`: so
    many are compiled at once; 0: as many as are worth it.

    When its symbols are looked up, LLVM links an object, and may find that it calls something which is not there. The
    texts of a batch with such a one in it are compiled one by one.
    """
    store, failed = _host.store, {}
    keys = keys or store.keys(texts)
    missing = _look(texts, keys, symbols, asked)
    instead = {name: quick_text(name, missing.pop(name)) for name in [*missing] if name in quickly}
    quick = {each: text for *names, text in instead.values() for each in names}
    keys = {**keys, **store.keys(quick)}
    missing |= _look(quick, keys, symbols, asked)
    for mark in (True, False) if missing else ():
        batch = {name: text for name, text in missing.items() if text.startswith(QUICK_MARK) is mark}
        again = _compile([batch] if parts == 1 and batch else _shares(batch), symbols, asked)
        alone = dict.fromkeys(batch[name] for name in again)
        failed |= _compile([{name: text for name in again if batch[name] == text} for text in alone], symbols, asked)
    found = store.known(keys)
    for name, (stand_in, slot, _) in instead.items():
        if stand_in in failed:
            failed[name], _ = failed.pop(stand_in), failed.pop(slot)
            continue
        found[name], better = found.pop(stand_in), found.pop(slot)
        if asked:
            when_idle(_improve, better, name, texts[name], processor())
    return found, failed


def _shares(batch):
    """{name: text} in parts that are compiled at once, an object each. A text may be asked for by several names, which
    stay together."""
    texts = {text: text for text in batch.values()}
    worth = 1 + sum(map(len, texts)) // SHARE_CHARACTERS
    parts = dealt_out(texts, min(compilers(), worth))
    return [{name: text for name, text in batch.items() if text in part} for part in parts]


def compilers():
    """How many threads may compile at once."""
    return min(processors(), quota(), settings.num_threads or processors())


def _compile(parts, symbols, asked):
    """Compile the texts of each of `parts`, {name: text}, as one object and keep it; or give {name: why} for all of
    it."""
    failed = {}
    codes = side_by_side([partial(_emit, part) for part in parts], len(parts))
    for part, (code, why) in zip(parts, codes, strict=True):
        why = why or _keep(part, code, symbols, asked)
        if why:
            failed |= dict.fromkeys(part, why)
    return failed


def _emit(part):
    """(the object of a part, None), or None and why there is none."""
    try:
        return _host.compile(list(dict.fromkeys(part.values()))), None
    except (RuntimeError, OSError) as error:                      # LLVM's; what is out of memory goes on
        return None, str(error)


def _keep(part, code, symbols, asked):
    """Keep the object of a part; gives why it cannot be put in memory."""
    global compiled
    with _lock:
        try:
            _host.store.keep(part, code, symbols)
        except (RuntimeError, OSError) as error:
            return str(error)
        compiled += asked and len({*part.values()})
    return ""


def assembly(text):
    """What the processor runs for `text`, in assembly language."""
    llvm = host()
    return undisturbed(lambda: llvm.machine.emit_assembly(llvm.parse(text, llvm.llvm.create_context())))


def processor():
    """What code is compiled for (see processor.py)."""
    return host().processor


def target():
    """What the text of a kernel has to know of it."""
    return host().target


def llvm_version():
    """Which LLVM compiles, or did beforehand."""
    return host().llvm_version()


def vector_bytes():
    """The bytes of the widest vectors."""
    return host().target.vector_bytes


def check_processor(text):
    """Refuse, with a ValueError, a processor that kernels cannot be compiled for here."""
    host().chosen(text)


def renew_processor():
    """Look again at which processor code is compiled for; what was compiled stays as it is."""
    with _lock:
        if _host is not None:
            _host.aim(settings.cpu)


def renew_disk():
    """Look again at which folder the objects are kept in, and how many bytes of them."""
    with _lock:
        if _host is not None and not settings.precompiled:
            _host.store.exchange(ObjectCache, users_folder())
    say_warnings()


def forget_launches():
    """Look for the code of every launch anew."""
    if _host is not None:
        _host.store.launches.clear()


def leave_packaged_kernels():
    """Use no kernels that came with the package from now on: Note [Packaged kernels] in kernel_store/packaged.py."""
    host().store.exchange(PackagedKernels)


def packaged_kernels():
    """Which kernels came with the package, in words."""
    return next((tier.described() for tier in host().store.tiers if isinstance(tier, PackagedKernels)),
                "none: they are left alone")


def origin_of(words):
    """What a text is written from: the words of a launch, or for a function of the library, and the target in use."""
    return f"{words}\n{tuple(target())}"


def packaged_functions(words, asked=True):
    """{words: address} of those that came with the package, as they would be written now from these `words`; see Note
    [Packaged kernels]. None of their texts has to be written."""
    store = host().store
    known = {each: found for each in words if (found := store.function(origin_of(each)))}
    return undisturbed(_find_packaged, known, asked) if known else {}


def _find_packaged(known, asked):
    """{words: address} of {words: (name, key of the object)}, as far as they can be put in memory."""
    global loaded
    found = {words: _host.store.find(whole, name) for words, (name, whole) in known.items()}
    found = {words: address for words, address in found.items() if address is not None}
    loaded += asked and len(found)
    return found


def host():
    """What compiles, or has compiled beforehand."""
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


class TemporaryOption:
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
        self.store = KernelStore(self)
        self.aim(settings.cpu)
        self.jit = llvm.create_lljit_compiler(self.machine, use_jit_link=os.name != "nt")
        self.numbers = itertools.count()
        self.without_strength_reduction = TemporaryOption(llvm, "-disable-lsr", "-disable-lsr=false")

    def chosen(self, text):
        """The Processor that `text` names, on this machine."""
        return choose(text, self.llvm.get_default_triple(), self.llvm.get_host_cpu_name(), self.features)

    def aim(self, text):
        """Compile for the processor that `text` names from now on."""
        self.aim_at(self.chosen(text))
        self.store.tiers = [PackagedKernels(self.version, self.processor), users_folder()]

    def aim_at(self, goal):
        """Compile for the Processor `goal` from now on. What this machine lacks can be compiled for, and not be run."""
        self.processor, self.target, self.store.tiers = goal, goal.target, []
        self._idle_machines = {0: [], 2: []}
        self.machine = self._machine(2)
        self.head = f'target triple = "{goal.triple}"\ntarget datalayout = "{self.machine.target_data}"\n'
        self.toolchain = "\0".join((self.version, goal.triple, goal.cpu, goal.flags))

    def _machine(self, level):
        """What generates code at an optimisation level; one thread at a time may use it."""
        goal = self.processor
        # small and position-independent: an object's parts lie side by side, what it calls is reached through a table
        return self.llvm.Target.from_triple(goal.triple).create_target_machine(
            cpu=goal.cpu, features=goal.flags, opt=level, reloc="pic", codemodel="small")

    def llvm_version(self):
        """Which LLVM it is."""
        return ".".join(map(str, self.llvm.llvm_version_info))

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

    def load(self, code, symbols):
        """Put the object `code` in memory; gives the name of the library it became."""
        _need_room(KERNEL_COMPILE_BYTES + COMPILE_BYTES_PER_CHARACTER * len(code))
        library = self.llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in (symbols or {}).items():
            library.import_symbol(name, address)
        linked = library.link(self.jit, f"library{next(self.numbers)}")
        linked.detach()                       # never freed: a thread may be running it, even while Python exits
        return linked.name

    def address(self, library, name):
        """Where `name` of a library is."""
        linked = self.jit.lookup(library, name)
        address = linked[name]
        linked.detach()
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

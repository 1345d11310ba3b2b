"""Every word of the loop language, and every step of the library, emitted for processors that are not here.

No kernel may call a function of a library but those on a short list: where LLVM has no instruction it writes a call, of
a function that the process may not have (`__truncdfhf2`) or that takes a hundred times as long (`fmaf`). Which words do
that depends on the processor, so every word goes through every one of them.
"""
import functools
import os
import re
import struct
from types import SimpleNamespace

import pytest

llvm = pytest.importorskip("llvmlite.binding")

import flambeau as torch
from flambeau.backends.cpu import runtime
from flambeau.backends.cpu.library import (
    conv_kernels,
    ctc,
    fft_kernels,
    gemm_kernels,
    gemm_narrow_kernels,
    gemm_packing,
    gemm_units,
    image_kernels,
    pool_kernels,
    scatter_kernels,
    sort_kernels,
    winograd_kernels,
)
from flambeau.backends.cpu.library.sort_keys import ORDERED_TYPES
from flambeau.backends.cpu.processor import PROCESSOR_LEVELS
from flambeau.loops.ir import (
    ALL_WORDS,
    BIT_WORDS,
    COMPARISON_WORDS,
    COMPLEX_WORDS,
    FUNCTION_WORDS,
    LEAF_WORDS,
    PART_OF_COMPLEX,
    REDUCTION_WORDS,
    ROUNDING_WORDS,
    SCALAR_TYPES,
    Access,
    Expr,
    Kernel,
    Pass,
    verify,
)
from flambeau.loops.llvm import render
from flambeau.loops.scalar import WORD_FUNCTIONS
from flambeau.loops.schedule import Schedule
from flambeau.loops.step import PROBED
from flambeau.loops.target import target_of

from ..thorough import sample, share

pytestmark = pytest.mark.pinned

X86, ARM, RISCV = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"
RV64 = "64bit m a f d c"
# name → (triple, LLVM's name of the processor, features)
TARGETS = {**{level: (X86, level, PROCESSOR_LEVELS["x86_64"][level]) for level in ("x86-64", "x86-64-v3", "x86-64-v4")},
           "sapphirerapids": (X86, "sapphirerapids",
                              f"{PROCESSOR_LEVELS['x86_64']['x86-64-v4']} avx512fp16 avx512bf16"),
           "graniterapids": (X86, "graniterapids", f"{PROCESSOR_LEVELS['x86_64']['x86-64-v4']} avx512fp16 avx512bf16 "
                                                   "amx-tile amx-bf16 amx-fp16 amx-int8"),
           "neoverse-v1": (ARM, "neoverse-v1", "fp-armv8 neon lse bf16"),
           "neoverse-n1": (ARM, "neoverse-n1", "fp-armv8 neon lse"), "apple-m1": (ARM, "apple-m1", "fp-armv8 neon lse"),
           "rv64gc": (RISCV, "generic-rv64", RV64), "rv64gcv": (RISCV, "generic-rv64", RV64 + " v")}

ALLOWED = {"memcpy", "memset"}                                # every process has them, and they are quick
WITHOUT_FMA = {"fma"}                                         # for numbers near the ends of float64 alone
OF_THE_RUNTIME = {"clock_gettime", "pthread_create", "pthread_detach", "pthread_sigmask", "pthread_attr_init",
                  "pthread_attr_setstacksize", "pthread_attr_destroy", "pthread_mutex_lock", "pthread_mutex_unlock",
                  "pthread_cond_wait", "pthread_cond_signal", "pthread_cond_broadcast", "pthread_key_create",
                  "pthread_getspecific", "pthread_setspecific", "malloc", "free"}


@pytest.fixture(scope="module", autouse=True)
def all_targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


class Emitter:
    """Objects for one of TARGETS."""

    def __init__(self, name):
        self.triple, cpu, features = TARGETS[name]
        self.on = set(features.split())
        self.target = target_of(self.triple, self.on)
        flags = ",".join(f"+{feature}" for feature in sorted(self.on))
        self.quick_machine, self.machine = [llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=cpu, features=flags, opt=level, reloc="pic", codemodel="small") for level in (0, 2)]
        self.head = f'target triple = "{self.triple}"\ntarget datalayout = "{self.machine.target_data}"\n'

    def object(self, texts, quickly=False):
        context = llvm.create_context()
        first, *others = [llvm.parse_assembly(self.head + text, context) for text in texts]
        for other in others:
            first.link_in(other)
        first.verify()
        return (self.quick_machine if quickly else self.machine).emit_object(first)


def undefined(code):
    """The symbols that an object, an ELF file of 64 bits, looks for elsewhere."""
    start, = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + size * i) for i in range(count)]
    out = set()
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind == 2:                                         # a table of symbols; `link` is that of its names
            names = sections[link][4]
            for at in range(offset + 24, offset + length, 24):
                name, _, _, section = struct.unpack_from("<IBBH", code, at)
                if section == 0:
                    out.add(code[names + name:code.index(b"\0", names + name)].decode())
    return out


# --- every word -------------------------------------------------------------------------------------------------------

FLOATS, INTS = ("f32", "f64"), ("u8", "i32", "i64")            # lesser integers take long, and are no other
ARGUMENTS = {"neg": 1, "abs": 1, "not": 1, "fma": 3, "fma_exact": 3, "pow": 2, "atan2": 2, "copysign": 2, "where": 3}
ONLY_FLOATS = {"div", "fma", "fma_exact", "fmin", "fmax"} | ROUNDING_WORDS | FUNCTION_WORDS
ON_BOOLS = {"and", "or", "xor", "not"}


def of(kinds, write, result):
    """A kernel that computes `write` of operands of `kinds`."""
    kernel = Kernel(1, 0)
    kernel.accesses = [Access(kind, [1]) for kind in (*kinds, result)]
    one = Pass()
    one.stores = [(len(kinds), write(*(Expr("load", kind, (), i) for i, kind in enumerate(kinds))))]
    kernel.passes = [one]
    return kernel


def reducing(how, kind):
    kernel, result = Kernel(1, 1, rows=1), "i64" if how.startswith("arg") else kind
    kernel.accesses = [Access(kind, ["s", "s"]), Access(result, [1, 0])]
    one = Pass()
    one.accs = [(how, Expr("load", kind, (), 0))]
    kernel.passes, kernel.finals = [one], [(1, Expr("acc", result, (), (0, 0)))]
    return kernel


def written(kernel, name, target):
    """The text of a kernel, walked one vector at a time."""
    schedule = Schedule((0,), 1, 1) if kernel.rows else Schedule((0,), 0, 1, (0,), (64,))
    return render(kernel, schedule, name, target)


def words():
    """{name: kernel} with every word in every type that it takes, one to a kernel."""
    out = {}
    for op in sorted(ALL_WORDS - LEAF_WORDS - COMPLEX_WORDS - {"where", "isnan", "cast", "bits", "from_bits"}):
        takes = FLOATS if op in ONLY_FLOATS else \
            (*INTS, *("b1",) * (op in ON_BOOLS)) if op in BIT_WORDS else FLOATS + INTS
        count = ARGUMENTS.get(op, 1 if op in FUNCTION_WORDS | ROUNDING_WORDS else 2)
        if hasattr(WORD_FUNCTIONS.get(op), "__wrapped__"):   # float32 by way of float64
            takes = ("f64",)
        for kind in takes:
            result = "b1" if op in COMPARISON_WORDS else kind
            out[f"{op}_{kind}"] = of([kind] * count, lambda *a, op=op, result=result: Expr(op, result, a), result)
    for kind in SCALAR_TYPES:
        out[f"where_{kind}"] = of(["b1", kind, kind], lambda *a, kind=kind: Expr("where", kind, a), kind)
        for to in SCALAR_TYPES:
            out[f"cast_{kind}_{to}"] = of([kind], lambda a, to=to: Expr("cast", to, (a,)), to)
    for kind, bits in (("f32", "i32"), ("f64", "i64")):
        out[f"isnan_{kind}"] = of([kind], lambda a: Expr("isnan", "b1", (a,)), "b1")
        out[f"bits_{kind}"] = of([kind], lambda a, bits=bits: Expr("bits", bits, (a,)), bits)
        out[f"from_bits_{kind}"] = of([bits], lambda a, kind=kind: Expr("from_bits", kind, (a,)), kind)
    for kind, part in PART_OF_COMPLEX.items():
        out[f"re_{kind}"] = of([kind], lambda a, part=part: Expr("re", part, (a,)), part)
        out[f"im_{kind}"] = of([kind], lambda a, part=part: Expr("im", part, (a,)), part)
        out[f"pair_{kind}"] = of([part, part], lambda *a, kind=kind: Expr("pair", kind, a), kind)
    for how in REDUCTION_WORDS:
        for kind in (*FLOATS, *INTS, "b1"):
            if (kind == "b1") == (how in ("any", "all")):
                out[f"{how}_{kind}"] = reducing(how, kind)
    return out


def test_every_word_is_among_them():
    made = {name.rpartition("_")[0] for name in words() if not name.startswith("cast")}
    assert made == ALL_WORDS - LEAF_WORDS - {"cast"} | set(REDUCTION_WORDS)
    for kernel in words().values():
        verify(kernel)


@pytest.mark.parametrize("number, name", list(enumerate(TARGETS)))
def test_no_word_calls_a_library(number, name):
    emitter, some = Emitter(name), share(words().items(), number, len(TARGETS))
    code = emitter.object(written(kernel, word, emitter.target) for word, kernel in some)
    assert undefined(code) <= ALLOWED | (set() if emitter.target.fma else WITHOUT_FMA)


@pytest.mark.parametrize("name", TARGETS)
def test_no_lane_is_masked_by_branches(name):
    """Masked are elements of sizes that the processor has masks for; LLVM writes a branch per lane for others."""
    target = Emitter(name).target
    texts = {word: written(kernel, word, target) for word, kernel in words().items()}
    calls = re.compile(r"call [^\n]*@llvm\.masked\.(?:load|store)\.v\d+[a-z]+(\d+)")
    for word, text in (*texts.items(), *((text[:80], text) for text in steps_of_the_library(target))):
        sizes = {int(bits) // 8 for bits in calls.findall(text)}
        assert sizes <= set(target.masked_bytes), word
        assert target.masked_bytes or "@llvm.masked.scatter" not in text, word


def steps_of_the_library(target):
    """The text of every kind of step that is written by hand, and of the innermost kernels that they call."""
    for element in ("float", "double"):
        gemm, tap, pooling = (kind(element, target)
                              for kind in (gemm_kernels.GemmKernels, conv_kernels.TapKernels, pool_kernels.PoolKernels))
        yield fft_kernels.FFTKernels(element, target).lines(f"fft_{element}", len(fft_kernels.RADICES))
        yield gemm.gemm(f"gemm_{element}")
        yield gemm.gemm_shared(f"gemm_shared_{element}")
        yield gemm.clear_counts(f"clear_counts_{element}")
        yield gemm.add_parts(f"add_parts_{element}")
        yield gemm.dots(f"dots_{element}", 2, 3)
        yield gemm.tiny(f"tiny_{element}", 3)
        yield gemm.micro(f"micro_{element}", 3, 2)
        yield gemm.micro_ahead(f"micro_ahead_{element}", 3, 2)
        yield gemm.micro_next(f"micro_next_{element}", 3, 2)
        for how in (gemm_packing.TURN, gemm_packing.GATHER):
            yield gemm.pack_a(f"pack_a_{element}_{how}", how)
        for how in (gemm_packing.COPY, gemm_packing.TURN, gemm_packing.GATHER):
            yield gemm.pack_b(f"pack_b_{element}_{how}", how)
        for apart in (0, 1):
            yield tap.plane(f"plane_{element}_{apart}", apart)
        for what in ("forth", "back", "spots"):
            yield getattr(tap, what)(f"{what}_{element}")
        for kind in pool_kernels.RUNNING_OPERATIONS:
            yield pooling.scan(f"scan_{element}_{kind}", kind)
        for dilated in (0, 1):
            yield pooling.max_pool(f"max_pool_{element}_{dilated}", dilated)
        for what in ("weigh", "drop_weighted", "add_weighted_rows", "sum_weighted_rows"):
            yield getattr(pooling, what)(f"{what}_{element}")
    made = scatter_kernels.ScatterKernels("float", target)
    for dtype in scatter_kernels.SCATTERED_TYPES:
        for how in scatter_kernels.SCATTER_OPERATIONS[1:]:
            yield made.scatter(f"scatter_{dtype}_{how}", how, dtype, 64, "rows")
    for form in scatter_kernels.FORMS:
        yield made.scatter(f"scatter_set_{form}", "set", "2", 32, form)
    made = winograd_kernels.WinogradKernels("float", target)
    for what in ("filters", "inputs", "tiles", "gradients", "products", "weights", "to_tiles", "from_tiles",
                 "to_gradients", "to_weights"):
        yield getattr(made, what)(f"winograd_{what}")
    for how in (winograd_kernels.FLAT_TAPS, winograd_kernels.MIRRORED_TAPS, winograd_kernels.STRIDED_TAPS):
        yield made.filter_block(f"filter_block_{how}", how)
    made = image_kernels.ImageKernels("float", target)
    for element in ("i8", "float"):
        yield made.jitter(f"jitter_{element}", element)
        yield made.resize(f"resize_{element}", element, 2)
        yield made.warp(f"warp_{element}", element, 6, 0, 1)
    for element in ("float", "double"):
        yield ctc.CTCKernels("double", target).ctc(f"ctc_{element}", element)
    made = sort_kernels.OrderKernels("float", target)
    for element in ORDERED_TYPES:
        for what, *how in (("ranks",), ("digits", 8), ("leaders", 0), ("leaders", 1), ("best", 11), ("select", 11)):
            yield getattr(made, what)("_".join(map(str, (what, element, *how))), element, *how)


@pytest.mark.parametrize("number, name", list(enumerate(TARGETS)))
def test_no_step_of_the_library_calls_another(number, name):
    emitter = Emitter(name)
    assert undefined(emitter.object(share(steps_of_the_library(emitter.target), number, 8))) <= ALLOWED


def dot_units(on):
    """All units for products of 16 and 8 bits that a processor with the features `on` has."""
    return [unit for units in gemm_units.DOT_UNITS.values() for unit, needed in units if needed <= on]


def test_which_processors_have_units_for_products_of_16_bits():
    found = {name: {(unit.name, unit.element) for unit in dot_units({*features.split()})}
             for name, (_, _, features) in TARGETS.items()}
    assert {name: units for name, units in found.items() if units} == {
        "sapphirerapids": {("avx512", "bfloat")}, "neoverse-v1": {("neon", "bfloat")},
        "graniterapids": {("amx", "bfloat"), ("avx512", "bfloat"), ("amx", "half"), ("amx", "i8")}}


@pytest.mark.parametrize("name", ["sapphirerapids", "graniterapids", "neoverse-v1"])
def test_products_of_16_bits_are_the_units_instructions(name):
    emitter = Emitter(name)
    instructions = {"amx": "tdp", "avx512": "vdpbf16ps", "neon": "bfdot"}
    for unit in dot_units(emitter.on):
        made = gemm_narrow_kernels.NarrowKernels(unit, emitter.target)
        texts = {"_".join(map(str, how)): getattr(made, how[0])("_".join(map(str, how)), *how[1:])
                 for how in made.every(None)}
        for word, text in texts.items():
            module = llvm.parse_assembly(emitter.head + text, llvm.create_context())
            module.verify()
            assert undefined(emitter.machine.emit_object(module)) <= ALLOWED, word
            if word.startswith("micro"):
                assert instructions[unit.name] in emitter.machine.emit_assembly(module)
        assert undefined(emitter.object([texts["gemm"]], quickly=True)) <= ALLOWED


@pytest.mark.parametrize("name", TARGETS)
def test_no_step_calls_another_where_it_is_compiled_quickly(name):
    emitter, texts = Emitter(name), []
    for kind in (gemm_kernels.GemmKernels, conv_kernels.TapKernels, winograd_kernels.WinogradKernels):
        made = kind("float", emitter.target)
        texts += [getattr(made, driver)(driver) for driver in made.drivers]
    assert undefined(emitter.object(texts, quickly=True)) <= ALLOWED


@pytest.mark.parametrize("name", sample(TARGETS, 2))
def test_frames_are_of_a_size_that_the_text_fixes(name):
    """What is sized when a step runs lies in the thread's room; and a stack that ends is found out page by page."""
    texts = list(steps_of_the_library(Emitter(name).target))
    text = "\n".join([*texts, *kept_rows(Emitter(name).target)])
    taken = re.findall(r"= alloca ([^\n]*)", text)
    assert taken and "%room" in text and not [one for one in taken if "%" in one]
    defined = [line for line in text.splitlines() if line.startswith("define void")]
    probed = [PROBED in line or line.endswith("#0 {") for line in defined]
    assert len(defined) > len(texts) // 2 and all(probed)
    assert all(PROBED in line for line in text.splitlines() if line.startswith("attributes #0"))


def kept_rows(target):
    """The texts of kernels that keep a row for a later pass, of each type that they may."""
    for type in ("f32", "f64"):
        kept, kernel = Expr("exp", type, (Expr("load", type, (), 0),)), Kernel(1, 1, rows=1)
        kernel.accesses, kernel.passes = [Access(type, ["s", 1]), Access(type, ["s", 1])], [Pass(), Pass()]
        kernel.passes[0].accs, kernel.passes[1].stores = [("sum", kept)], [(1, kept)]
        schedule = Schedule((0,), 1, 1)
        schedule.scratch = 0, kept
        yield render(kernel, schedule, f"kept_{type}", target)


@pytest.mark.skipif(os.name != "posix", reason="the runtime's threads are those of POSIX")
@pytest.mark.parametrize("name", sample(TARGETS, 2))
def test_the_runtime_calls_the_system_only(name, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=TARGETS[name][0].partition("-")[0]))
    assert undefined(Emitter(name).object([runtime.text()], quickly=True)) <= ALLOWED | OF_THE_RUNTIME


# --- what the test looks for is what LLVM does ------------------------------------------------------------------------

def test_without_care_there_would_be_calls():
    """The same words written for a processor that has everything: LLVM falls back on functions, and it shows."""
    emitter, some = Emitter("x86-64"), words()
    code = emitter.object(written(some[word], word, Emitter("x86-64-v3").target)
                          for word in ("cast_f16_f32", "cast_f32_f16", "floor_f32", "fma_f64"))
    assert undefined(code) == {"__extendhfsf2", "__truncsfhf2", "floorf", "fma"}


# --- whole kernels ----------------------------------------------------------------------------------------------------

@functools.cache
def kernels_of_programs():
    """Kernels as programs have them: several words together."""
    functional, seen = torch.nn.functional, {}
    with torch.config.using(executor="native"):
        for dtype in (torch.float16, torch.float64):
            x, w = torch.ones(40, 300, dtype=dtype), torch.ones(300, dtype=dtype)
            label = torch.arange(40)
            torch.cpu.synchronize()
            for made in (torch.softmax(x * 2, 1), functional.layer_norm(x, (300,), w, w), functional.gelu(x).sum(0),
                         functional.cross_entropy(x, label), torch.special.ndtr(x), x.std(0), x.argmax(1),
                         x.t().contiguous(), x.long().half(), (x[:, ::2] % 3).floor(), torch.special.logit(x, 0.1),
                         ((x[:, None, :16] - x[None, :, :16]) ** 2).sum(-1).sqrt()):
                for step in torch.plans.of(made).kernels:
                    seen[str(step.loop)] = step.launch
    return list(seen.values())


@pytest.mark.parametrize("number, name", list(enumerate(TARGETS)))
def test_no_kernel_of_a_program_calls_a_library(number, name):
    emitter, some = Emitter(name), share(enumerate(kernels_of_programs()), number, 4)
    code = emitter.object(render(launch.kernel, launch.schedule, f"k{i}", emitter.target) for i, launch in some)
    assert undefined(code) <= ALLOWED | (set() if emitter.target.fma else WITHOUT_FMA)

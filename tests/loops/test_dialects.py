"""The seam between the writer of GPU kernels (loops/gpu) and the languages that it writes (loops/dialects)."""
import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import flambeau.loops.dialects
import flambeau.loops.gpu
from flambeau.backends.cuda.schedule import GridSchedule
from flambeau.loops.dialects.cuda import CUDA
from flambeau.loops.dialects.dialect import KernelDialect
from flambeau.loops.dialects.words import KernelWords, Unrenderable
from flambeau.loops.gpu.render import render, render_part
from flambeau.loops.ir import SCALAR_TYPES, Launch, verify

from .test_cuda import column_sum, doubled, launch_of, normed, softmax
from .test_ir import acc, kernel, load, op

pytestmark = pytest.mark.pinned

OF_CUDA = re.compile(r"__\w+|blockIdx|threadIdx|float4|\basm\b|extern|#ifdef|0xffffffff"
                     r"|\b(?:unsigned|float|double|long|short|bool|char|int)\b")


class ToyDialect(KernelDialect):
    """C++ with other words than CUDA's for all that a dialect has words for."""

    types = {type: f"{type}_t" for type in CUDA.types}
    functions = CUDA.functions
    bit_casts = {name: f"bits_{name}" for name in CUDA.bit_casts}
    block, thread = "BLOCK", ("THREAD_X", "THREAD_Y")
    inline, outlined = "INLINE", "OUTLINED"
    kernel = "KERNEL {name} OF {bounds} THREADS"
    shared = "SHARED"
    barrier, warp_barrier = "BARRIER", "WARP_BARRIER"
    shuffles = {how: f"shuffle_{how}({{value}}, {{by}}, {{width}})" for how in CUDA.shuffles}
    max_given_words, byte = 100, "BYTE"


TOY = ToyDialect()
# what the toy's words are in CUDA, the longer ones first
TRANSLATED = [(TOY.kernel.format(name="name", bounds="(.*?)"),
               CUDA.kernel.format(name="name", bounds=r"\1")), (r"\bshuffle_from\(", "__shfl_sync(0xffffffffu, "),
              (r"\bshuffle_down\(", "__shfl_down_sync(0xffffffffu, "),
              (r"\bshuffle_across\(", "__shfl_xor_sync(0xffffffffu, "),
              *((rf"\b{getattr(TOY, word)}\b", getattr(CUDA, word)) for word in
                ("block", "inline", "outlined", "shared", "barrier", "warp_barrier", "byte")),
              *((rf"\b{toy}\b", cuda) for toy, cuda in zip(TOY.thread, CUDA.thread, strict=True)),
              *((rf"\b{toy}\b", CUDA.bit_casts[name]) for name, toy in TOY.bit_casts.items())]


def translated(text):
    """A text in the toy dialect in the words of CUDA, but for the types: of these several are of one name there."""
    for toy, cuda in TRANSLATED:
        text = re.sub(toy, cuda, text)
    return text


def without_types(text):
    """The text in which each type is one letter."""
    text = re.sub("|".join(rf"\b{name}\b" for name in TOY.types.values()), "T", text)
    names = sorted(set(CUDA.types.values()), key=len, reverse=True)
    return re.sub("|".join(rf"\b{name}\b" for name in names), "T", text)


def without_instructions(text):
    """The text in which helpers have no instruction of CUDA's."""
    return re.sub(r"#ifdef __CUDA_ARCH__\n.*?#else\n(.*?)#endif\n", r"\1", text, flags=re.DOTALL)


def across():
    k = kernel(2, 0, ("f32", (1, "s")), ("b1", (1, "s")), ("f32", ("s", 1)))
    k.passes[0].stores.append((2, op("where", load(1, "b1"), load(0), load(0), type="f32")))
    return launch_of(k, [100, 70], [[1, 100], [1, 100], [70, 1]])


def reduced(kind, type, sizes, strides, steps=("s", 1)):
    k = kernel(1, 1, (type, steps), ("i64" if kind.startswith("arg") else type, (1, 0)), rows=4)
    k.passes[0].accs.append((kind, load(0, type)))
    result = "i64" if kind.startswith("arg") else type
    k.finals.append((1, acc(0, type=result)))
    return launch_of(k, sizes, strides)


def functions():
    """A map that calls every helper, over positions of 64 bits."""
    k = kernel(1, 0, *[(type, ("s",)) for type in SCALAR_TYPES], *[(type, (1,)) for type in SCALAR_TYPES])
    for i, type in enumerate(SCALAR_TYPES):
        single, double = (op("cast", load(i, type), type=float_type) for float_type in ("f32", "f64"))
        out = op("add", op("cast", op("sigmoid", single), type="f64"), op("digamma", double))
        k.passes[0].stores.append((len(SCALAR_TYPES) + i, op("cast", out, type=type)))
    return launch_of(k, [1 << 31], [[3]] * len(SCALAR_TYPES) + [[1]] * len(SCALAR_TYPES))


LAUNCHES = {
    "map": lambda: doubled(1000), "large map": lambda: doubled(1 << 20), "functions": functions,
    "columns": lambda: column_sum(16384, 4096), "short rows": lambda: softmax(100, 10),
    "rows of a warp": lambda: softmax(100, 1024), "rows of a block": lambda: softmax(100, 3001),
    "rows in a loop": lambda: softmax(100, 50257), "halves": lambda: softmax(100, 1024, "bf16"),
    "a place": lambda: reduced("argmax", "f32", [100, 4096], [[4096, 1], [1, 0]]),
    "a place in a warp": lambda: reduced("argmin", "i16", [100, 64], [[64, 1], [1, 0]]),
    "bytes": lambda: reduced("max", "i8", [100, 64], [[64, 1], [1, 0]]),
    "rows abreast": lambda: reduced("sum", "f32", [4096, 256], [[1, 4096], [1, 0]], (1, "s")),
    "across": across, "with columns": lambda: normed(16384, 4096, 256),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_another_dialect_differs_by_its_words_alone(name):
    launch = LAUNCHES[name]()
    for write in (lambda d: render(launch.kernel, launch.schedule, "name", d),
                  lambda d: render_part(launch.kernel, launch.schedule, d)):
        toy, cuda = write(TOY), write(CUDA)
        assert without_types(translated(toy)) == without_types(without_instructions(cuda))
        assert OF_CUDA.findall(toy) == []


DIALECTS = {name: made for _, module, _ in pkgutil.iter_modules(flambeau.loops.dialects.__path__)
            for name, made in vars(importlib.import_module(f"flambeau.loops.dialects.{module}")).items()
            if isinstance(made, KernelDialect)}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_has_a_word_for_everything(name):
    """Every dialect of the package, which is an object in a module of loops/dialects."""
    dialect = DIALECTS[name]
    missing = [word for cls in type(dialect).__mro__ for word in inspect.get_annotations(cls)
               if not hasattr(dialect, word)]
    assert not missing, f"{name} does not say {', '.join(missing)}, which loops/dialects explains"
    for launch in [make() for make in LAUNCHES.values()]:
        render(launch.kernel, launch.schedule, "name", dialect)
        render_part(launch.kernel, launch.schedule, dialect)


def test_a_dialect_says_how_much_a_kernel_is_given():
    k = kernel(1, 0, *[("f32", ("s",))] * 60)
    k.passes[0].stores += [(i, load(0)) for i in range(1, 60)]
    launch = launch_of(k, [100], [[2]] * 60)
    assert "p59" in render(k, launch.schedule, "name", CUDA)
    with pytest.raises(Unrenderable, match="122 arguments of a kernel"):
        render(k, launch.schedule, "name", TOY)


def written(path):
    """The text that a module puts into texts: its strings, but for those that say what it is for."""
    tree = ast.parse(path.read_text())
    said = {node.body[0].value for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef |
            ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and node not in said]


def test_the_writer_has_no_words_of_a_language():
    paths = [*Path(flambeau.loops.gpu.__file__).parent.glob("*.py"), Path(inspect.getfile(KernelDialect)),
             Path(inspect.getfile(KernelWords))]
    assert len(paths) > 8
    found = {f"{path.name}: {text}" for path in paths for text in written(path) if OF_CUDA.search(text)}
    assert not found, found


# --- a language that is not C++ ---------------------------------------------------------------------------------------

class LettingDialect(KernelDialect):
    """As a language of browsers has it: `let` and `var`, functions for conversions, arrays that are bound."""

    types = {"f32": "f32", "i32": "i32", "i64": "i32", "u8": "u32", "b1": "bool", "u32": "u32"}
    functions = ("exp",)
    bit_casts = {"f32_as_i32": "bitcast<i32>", "i32_as_f32": "bitcast<f32>"}
    block, thread = "block.x", ("thread.x", "thread.y")
    shared, max_given_words = "var<workgroup>", 16
    kernel = ("@compute @workgroup_size({bounds}) fn {name}(@builtin(workgroup_id) block: vec3u, "
              "@builtin(local_invocation_id) thread: vec3u)")
    barrier = warp_barrier = "workgroupBarrier();"
    shuffles = {"from": "subgroupShuffle({value}, {by})", "down": "subgroupShuffleDown({value}, {by})",
                "across": "subgroupShuffleXor({value}, {by})"}

    def given(self, pointers, ints, numbers):
        yield f"struct Given {{ {' '.join(f'{name}: i32,' for name in ints)} }}"
        yield "@group(0) @binding(0) var<uniform> given: Given;"
        for i, (name, type) in enumerate(pointers):
            yield f"@group(0) @binding({i + 1}) var<storage, read_write> bound_{name}: array<{self.types[type]}>;"

    def constant(self, kind, name, text):
        return f"let {name}: {kind} = {text};"

    def variable(self, kind, name, text):
        return f"var {name}: {kind} = {text};"

    def pointer(self, kind, name, text):
        return f"let {name} = &{text.replace('given.', 'bound_')};"

    def convert(self, kind, text):
        return f"{kind}({text})"

    def select(self, condition, a, b):
        return f"select({b}, {a}, {condition})"

    def function(self, name, type, *args):
        return f"{name}({', '.join(args)})"

    def element(self, address):
        return f"{address[0]}[{' + '.join(address[1:])}]"

    def loop(self, kind, name, first, condition, step=None):
        begin = f"var {name}: {kind} = {first}" if kind is not None else ""
        return f"for ({begin}; {condition}; {name} += {step or 1})"

    def unroll(self, times=None):
        return f"// {times} at once"


def test_a_language_that_is_not_c():
    k, x = kernel(1, 1, ("f32", (1, "s")), ("f32", (1, 0))), load(0)
    k.passes[0].accs.append(("sum", op("max", op("exp", x), x)))
    k.finals.append((1, acc(0)))
    verify(k)
    launch = Launch(k, [100, 7], [[1, 100], [1, 0]], block=0)
    launch.schedule = GridSchedule("positions", [0], False, (64, 1, 1), unroll=4)
    assert render(k, launch.schedule, "name", LettingDialect()) == """\
struct Given { count: i32, size_0: i32, size_1: i32, stride_0_1: i32, }
@group(0) @binding(0) var<uniform> given: Given;
@group(0) @binding(1) var<storage, read_write> bound_p0: array<f32>;
@group(0) @binding(2) var<storage, read_write> bound_p1: array<f32>;
@compute @workgroup_size(64) fn name(@builtin(workgroup_id) block: vec3u, @builtin(local_invocation_id) thread: vec3u) {
  let t0: i32 = i32(block.x) * 64;
  let count: i32 = i32(given.count);
  let t1: i32 = t0 + i32(thread.x);
  let size_1: i32 = i32(given.size_1);
  let p0 = &bound_p0;
  let stride_0_1: i32 = i32(given.stride_0_1);
  let p1 = &bound_p1;
  if (t1 < count) {
    var a0_0_2: f32 = 0.0f;
    // 4 at once
    for (var i3: i32 = 0; i3 < size_1; i3 += 1) {
      let t4: i32 = t1 + i3 * stride_0_1;
      let t5: f32 = p0[t4];
      let t6: f32 = exp(t5);
      let t7: f32 = select(t5, t6, t6 != t6 || t6 > t5);
      a0_0_2 = a0_0_2 + t7;
    }
    p1[t1] = a0_0_2;
  }
}
"""

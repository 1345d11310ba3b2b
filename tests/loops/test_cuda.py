"""CUDA C++: what kernels are rendered as, and which way a GPU goes through them."""
import functools
import re
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from flambeau.backends.backend import Unschedulable
from flambeau.backends.cuda.schedule import LANE_BYTES, REDUCTIONS, reciprocal, schedule
from flambeau.loops.dialects.cuda import CUDA
from flambeau.loops.dialects.words import Unrenderable
from flambeau.loops.gpu.render import render
from flambeau.loops.ir import SCALAR_TYPES, Launch, Pass, verify
from flambeau.trace.planning.reduction_order import order_of

from .test_ir import acc, kernel, load, op

pytestmark = pytest.mark.pinned


def launch_of(k, sizes, strides, block=0):
    verify(k)
    made = Launch(k, list(sizes), [list(s) for s in strides], block=block)
    made.schedule = schedule(made)
    return made


def text_of(launch):
    return render(launch.kernel, launch.schedule, "name", CUDA)


def words_of(launch):
    return str(launch).splitlines()[-1].removeprefix("  schedule ")


def doubled(n):
    k, x = kernel(1, 0, ("f32", (1,)), ("f32", (1,))), load(0)
    k.passes[0].stores.append((1, op("add", x, x)))
    return launch_of(k, [n], [[1], [1]])


def softmax(rows, n, type="f32"):
    k = kernel(1, 1, (type, ("s", 1)), (type, ("s", 1)), rows=4)
    k.passes += [Pass(), Pass()]
    x = load(0, type) if type == "f32" else op("cast", load(0, type), type="f32")
    k.passes[0].accs.append(("max", x))
    e = op("exp", op("sub", x, acc(0)))
    k.passes[1].accs.append(("sum", e))
    out = op("div", e, acc(1))
    k.passes[2].stores.append((1, out if type == "f32" else op("cast", out, type=type)))
    return launch_of(k, [rows, n], [[n, 1], [n, 1]])


def column_sum(n, columns, type="f32"):
    k = kernel(1, 1, (type, (1, "s")), (type, (1, 0)))
    k.passes[0].accs.append(("sum", load(0, type)))
    k.finals.append((1, acc(0, type=type)))
    return launch_of(k, [columns, n], [[1, columns], [1, 0]])


def test_a_small_map():
    assert text_of(doubled(1000)) == """\
struct Given {
  unsigned long long p0, p1;
  long long count, size_0;
};
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T x[N]; };
extern "C" __global__ void __launch_bounds__(256) name(const Given given) {
  const int t0 = (int)blockIdx.x * 1024;
  const int count = (int)given.count;
  float *const p0 = (float *)given.p0;
  float *const p1 = (float *)given.p1;
  if (((given.p0 | given.p1) & 15) == 0 && count - t0 >= 1024) {
    const int t1 = t0 + 0 + (int)threadIdx.x * 4;
    const Pack<float, 4> x2 = *(const Pack<float, 4> *)(p0 + t1);
    const float t3 = x2.x[0] + x2.x[0];
    const float t4 = x2.x[1] + x2.x[1];
    const float t5 = x2.x[2] + x2.x[2];
    const float t6 = x2.x[3] + x2.x[3];
    *(Pack<float, 4> *)(p1 + t1) = Pack<float, 4>{{t3, t4, t5, t6}};
  }
  else {
    const int i8 = count - t0 < 1024 ? count : t0 + 1024;
    #pragma unroll 1
    for (int i7 = t0 + (int)threadIdx.x; i7 < i8; i7 += 256) {
      const float t9 = *(p0 + i7);
      const float t10 = t9 + t9;
      *(p1 + i7) = t10;
    }
  }
}
"""


def test_large_maps_have_two_loads_under_way():
    launch = doubled(1 << 20)
    assert words_of(launch) == "positions, 256 threads of 2 times 4, unrolled by 8"
    assert launch.schedule.grid(launch) == (512, 1, 1) and launch.schedule.ints(launch) == [1 << 20, 1 << 20]
    lines = text_of(launch).splitlines()
    first, second = (i for i, line in enumerate(lines) if "= *(const Pack" in line)
    assert not any("= x" in line for line in lines[first:second])


def test_what_does_not_lie_side_by_side_is_read_one_by_one():
    k = kernel(1, 0, ("f32", ("s",)), ("f32", (1,)))
    k.passes[0].stores.append((1, load(0)))
    launch = launch_of(k, [1000], [[3], [1]])
    assert launch.schedule.vector == 1 and "Pack" not in text_of(launch)


def test_vectors_stay_on_boundaries():
    """Rows of a length that is no multiple of four would begin in between."""
    for length, width in ((64, 4), (66, 2), (67, 1)):
        k = kernel(2, 0, ("f32", ("s", 1)), ("f32", (0, 1)), ("f32", ("s", 1)))
        k.passes[0].stores.append((2, op("add", load(0), load(1))))
        launch = launch_of(k, [10, length], [[length, 1], [0, 1], [length, 1]])
        assert launch.schedule.vector == width
        assert launch.schedule.ints(launch) == [10 * length, 10, length, *reciprocal(length), length, length]


def test_tiles_of_long_rows():
    """What a row has one of is read once by a thread, for all the positions that it takes of it."""
    k = kernel(2, 0, ("bf16", ("s", 1)), ("f32", (1, 0)), ("f32", ("s", 1)))
    k.passes[0].stores.append((2, op("mul", op("cast", load(0, "bf16"), type="f32"), load(1))))
    launch = launch_of(k, [8192, 50257], [[50257, 1], [1, 0], [50257, 1]])
    assert words_of(launch) == "positions, 256 threads of 8 times 1 of one row, unrolled by 8"
    assert launch.schedule.grid(launch) == (8192 * 25, 1, 1) and text_of(launch).count("*(p1") == 1
    assert launch.schedule.ints(launch) == [8192 * 50257, 8192, 50257, 25, *reciprocal(25), 50257, 50257]


def test_positions_that_need_64_bits():
    launch = doubled(1 << 31)
    assert words_of(launch).endswith("64 bits") and "const long long count = (long long)given.count" in text_of(launch)


def test_short_rows_share_warps_and_long_ones_have_blocks():
    for n, said in ((10, "16 at once by 8 threads of 2, 1 times"), (16, "32 at once by 4 threads of 4, 1 times"),
                    (1024, "4 at once by 32 threads of 4, 8 times"), (4096, "1 at once by 256 threads of 4, 4 times"),
                    (3001, "1 at once by 256 threads of 1, 12 times"),
                    (50257, "1 at once by 1024 threads of 1, in a loop, unrolled by 4")):
        launch = softmax(100, n)
        assert words_of(launch) == f"rows, {said}"
        assert launch.schedule.grid(launch) == (-(-100 // launch.schedule.block[1]), 1, 1)


def test_registers_leave_room_for_threads():
    """A block of 1024 threads alone on a multiprocessor would wait; down columns, few threads have many loads each."""
    assert softmax(100, 50257).schedule.bounds == (1024, 2) and softmax(100, 4096).schedule.bounds == (256, 3)
    assert column_sum(16384, 4096).schedule.bounds == (128, 8) and doubled(1000).schedule.bounds == (256,)


def test_a_row_at_hand_is_read_once():
    """The maximum, the sum and the quotients: what was loaded, and what was raised, stays in registers."""
    text = text_of(softmax(100, 4096))
    loads = re.findall(r"= take<float, 4>\(p0 \+ t\d+, true\)", text)
    assert len(loads) == len(set(loads)) == 4 and text.count("expf(") == 16
    assert text.count("give(p1") == 4


def test_a_kernel_has_one_text():
    """By which it is found on the disk, where another process left its code."""
    def text():
        k = kernel(1, 1, ("f32", ("s", 1)), ("f32", ("s", 1)), rows=4)
        k.passes += [Pass()]
        x = load(0)
        costly = [op(word, x) for word in ("exp", "log", "sin", "cos", "tanh")]
        k.passes[0].accs += [("sum", e) for e in costly]
        k.passes[1].stores.append((1, functools.reduce(lambda a, b: op("add", a, b), costly, acc(0))))
        return text_of(launch_of(k, [100, 256], [[256, 1], [256, 1]])), k        # held, so that the next is elsewhere

    assert len({made[0] for made in [text() for _ in range(20)]}) == 1


def test_halves_are_taken_by_eight():
    launch = softmax(100, 1024, "bf16")
    assert launch.schedule.vector == 8 and "take<unsigned short, 8>" in text_of(launch)


def test_the_lanes_of_a_row_are_those_of_the_order():
    """However many threads there are, they have the accumulators of all lanes between them."""
    for n in (100, 1000, 3000, 4096, 100000):
        schedule_ = softmax(10, n).schedule
        assert LANE_BYTES * 4 // 4 % (schedule_.group * schedule_.vector) == 0


def test_columns():
    launch = column_sum(16384, 4096)
    assert words_of(launch) == "positions, 128 threads of 1 times 1, unrolled by 8"
    assert words_of(column_sum(100, 1 << 18)) == "positions, 128 threads of 1 times 4, unrolled by 8"
    text = text_of(launch)
    assert "#pragma unroll 8" in text and text.count("= *(p0") == 1


def test_operands_that_lie_across_go_through_shared_memory():
    k = kernel(2, 0, ("f32", (1, "s")), ("f32", ("s", 1)))
    k.passes[0].stores.append((1, op("add", load(0), load(0))))
    launch = launch_of(k, [100, 70], [[1, 100], [70, 1]])
    assert words_of(launch) == "turned, p0 through shared memory"
    assert launch.schedule.grid(launch) == (4 * 3, 1, 1) and launch.schedule.block == (32, 8, 1)
    assert "__shared__ float tile0[32][33];" in text_of(launch)


def test_a_block_of_a_reduction_that_is_cut():
    k = kernel(1, 1, ("f32", (0, 1)), ("f32", (1, 0)), rows=4, cut=0)
    k.passes[0].accs.append(("sum", load(0)))
    k.finals.append((1, acc(0)))
    launch = launch_of(k, [4, 10000], [[0, 1], [1, 0]], block=3072)
    assert launch.schedule.ints(launch)[-1] == 3072 and "block_cut" in text_of(launch)


H200 = SimpleNamespace(multi_processor_count=132)


def normed(rows, n, blocks, type="f32", others=0):
    """Rows divided by their sums and multiplied by weights, with the columns of that added up in blocks, and with the
    columns of `others`, which the rows do not read."""
    block = -(-rows // blocks)
    parts = [("f32", ("s", 0, 1))] * (1 + others)
    k = kernel(2, 1, (type, (0, "s", 1)), ("f32", (0, 0, 1)), (type, (0, "s", 1)), *parts,
               *[("f32", (0, "s", 1))] * others, rows=4, cut=0)
    k.passes.append(Pass())
    x = op("mul", load(0) if type == "f32" else op("cast", load(0, type), type="f32"), load(1))
    k.passes[0].accs.append(("sum", x))
    out = op("div", x, acc(0))
    k.passes[1].stores.append((2, out if type == "f32" else op("cast", out, type=type)))
    k.passes[1].columns.append(("sum", 3, out))
    k.passes[0].columns += [("sum", 4 + i, load(4 + others + i)) for i in range(others)]
    verify(k)
    strides = [[0, n, 1], [0, 0, 1], [0, n, 1], *[[n, 0, 1]] * (1 + others), *[[0, n, 1]] * others]
    made = Launch(k, [blocks, rows, n], strides, block=block)
    made.schedule = schedule(made, H200)
    return made


def test_rows_that_carry_columns():
    """A block of threads has a block of rows, and the weights and the columns' sums all the while."""
    launch = normed(16384, 4096, 256)
    assert words_of(launch) == "rows, 1 at once by 256 threads of 4, 4 times"
    assert launch.schedule.grid(launch) == (256, 1, 1) and launch.schedule.bounds == (256, 3)
    before, loop = text_of(launch).split("#pragma unroll 1\n")
    loop, after = loop.split("\n  }\n", 1)
    assert loop.startswith("  for (int i") and loop.count("take<float, 4>(p0 +") == 8
    assert before.count("take<float, 4>(p1 +") == 8 and "(p1 +" not in loop
    assert loop.count("give(p2 +") == 4 and "p3" not in loop and after.count("give(p3 +") == 4


@pytest.mark.parametrize("given, why", [
    ((16384, 4096, 256, "f32", 1), "columns that read what the rows do not"),
    ((8192, 768, 384), "384 blocks of columns of 768 elements for 132 multiprocessors"),
    ((16384, 4096, 400), "400 blocks of columns for 396 at once"),
    ((32768, 768, 2400, "bf16"), "2400 blocks of columns for"),
    ((16384, 1 << 16, 256), "columns of 65536 elements for at most 512 threads"),
])
def test_columns_that_are_better_left_to_a_kernel_of_their_own(given, why):
    with pytest.raises(Unschedulable, match=why):
        normed(*given)


def test_where_few_blocks_are_they_have_more_threads():
    assert words_of(normed(16384, 1024, 2000)) == "rows, 1 at once by 64 threads of 4, 4 times"
    assert words_of(normed(8192, 1024, 512)) == "rows, 1 at once by 128 threads of 4, 2 times"


def test_of_many_small_blocks_the_last_begin_while_others_run():
    launch = normed(32768, 768, 2400)
    at_once = 132 * launch.schedule.together
    assert at_once < 2400 < 0.75 * 2 * at_once and launch.schedule.together >= 8


def test_halves_beside_columns_are_taken_by_as_many_as_there_are_lanes_for():
    launch = normed(16384, 4096, 256, "bf16")
    assert (launch.schedule.group, launch.schedule.vector) == (256, 4)
    assert "take<unsigned short, 4>" in text_of(launch)


def test_rows_whose_elements_are_far_apart():
    """Neighbouring threads have neighbouring rows."""
    k = kernel(1, 1, ("f32", (1, "s")), ("f32", (1, 0)), rows=4)
    k.passes[0].accs.append(("sum", load(0)))
    k.finals.append((1, acc(0)))
    launch = launch_of(k, [4096, 256], [[1, 4096], [1, 0]])
    assert words_of(launch) == "rows, 32 abreast by 16 threads of 1, 16 times"
    assert launch.schedule.block == (32, 16, 1) and launch.schedule.grid(launch) == (128, 1, 1)
    assert "blockIdx.x * 32 + (int)threadIdx.x" in text_of(launch)
    assert launch_of(k, [1024, 256], [[1, 1024], [1, 0]]).schedule.block == (8, 16, 1)
    assert words_of(launch_of(k, [1 << 16, 4096], [[1, 1 << 16], [1, 0]])) == \
        "rows, 32 abreast by 32 threads of 1, in a loop, unrolled by 4"


def test_wide_rows_are_at_hand_where_more_threads_take_less_each():
    """Of 16-bit floats by eight there would be too many for 128 threads."""
    k = kernel(1, 1, *[("bf16", ("s", 1))] * 4, rows=4)
    k.passes.append(Pass())
    some = [op("cast", load(i, "bf16"), type="f32") for i in range(3)]
    k.passes[0].accs += [("sum", e) for e in some]
    out = op("mul", op("sub", some[0], acc(0)), op("mul", op("sub", some[1], acc(0, 1)), op("sub", some[2], acc(0, 2))))
    k.passes[1].stores.append((3, op("cast", out, type="bf16")))
    launch = launch_of(k, [100, 4096], [[4096, 1]] * 4)
    assert words_of(launch) == "rows, 1 at once by 256 threads of 4, 4 times"


def test_too_many_arguments_are_refused():
    k = kernel(1, 0, *[("f32", ("s",))] * 300)
    k.passes[0].stores += [(i, load(0)) for i in range(1, 300)]
    with pytest.raises(Unschedulable, match="a kernel of 602 arguments"):
        launch_of(k, [100], [[2]] * 300)


def test_halves_are_only_converted():
    k = kernel(1, 0, ("f16", (1,)), ("f16", (1,)))
    k.passes[0].stores.append((1, op("neg", load(0, "f16"))))
    with pytest.raises(Unschedulable, match="neg of f16"):
        launch_of(k, [100], [[1], [1]])
    with pytest.raises(Unrenderable, match="add.f16"):
        CUDA.expression("add", "f16", ("a", "b"), "f16")
    assert CUDA.expression("where", "bf16", ("c", "a", "b"), "b1")[0] == "c ? a : b"


@given(st.integers(1, (1 << 31) - 1), st.integers(0, (1 << 31) - 1))
def test_division_by_multiplication(size, n):
    multiplier, shift = reciprocal(size)
    assert n * multiplier >> shift == n // size and multiplier < 1 << 32


def test_literals():
    said = {"f32": "0.5f", "f64": "0.5", "f16": "(unsigned short)14336", "bf16": "(unsigned short)16128", "b1": "true"}
    assert {type: CUDA.literal(0.5 if type in said else 3, type) for type in SCALAR_TYPES} == {
        **said, "i8": "(signed char)3", "u8": "(unsigned char)3", "i16": "(short)3", "i32": "3", "i64": "3ll"}
    assert CUDA.literal(-(1 << 63), "i64") == "(-9223372036854775807ll - 1)"
    assert CUDA.literal(255, "i8") == "(signed char)-1"
    assert CUDA.literal(float("-inf"), "f32") == "-__int_as_float(0x7f800000)" and CUDA.literal(1, "f32") == "1.0f"


@pytest.mark.parametrize("rows", [300, 8192, 16384, 100_003])
@pytest.mark.parametrize("columns", [1, 64, 768, 2304, 4096, 50_257])
def test_blocks_of_a_reduction_down_columns_have_about_the_same_work(rows, columns):
    order = order_of((rows, columns), (0,), (columns, 1), REDUCTIONS)
    if order.blocks and not order.along_rows:
        assert -(-rows // order.block) >= 0.8 * order.blocks       # the rest would lie idle, and the others wait

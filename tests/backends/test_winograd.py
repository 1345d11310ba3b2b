"""Convolutions by Winograd's minimal filtering: against sums over windows in float64, and the direct way."""
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import flambeau
from flambeau.backends.cpu import threads
from flambeau.backends.cpu.library import conv, winograd, winograd_kernels
from flambeau.loops.step import in_room
from flambeau.loops.target import Target

from .test_library import convolved, execute, layout, vector_bytes  # noqa: F401

HOW = (1, 1), (1, 1), 1                     # stride, dilation, groups


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Every convolution that can go this way does, however small."""
    for pays in ("pays", "pays_for_weight"):
        monkeypatch.setattr(winograd, pays, lambda *_: True)


@pytest.fixture
def set_threads():
    before = threads.get_num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)


def is_winograd(steps):
    return len(steps) > 1 and steps[0].scratch > 0


def forward(x, weight, padding, direct=False):
    """The convolution, by way of `tiles` or directly."""
    stride, dilation, groups = HOW
    n, o = x.shape[0], weight.shape[0]
    y = np.full((n, o, *[s + 2 * p - 2 for s, p in zip(x.shape[2:], padding)]), np.nan, "float32")
    steps = conv.convolve("float32", layout(x), layout(weight), layout(y), stride, padding, dilation, groups)
    assert is_winograd(steps)
    execute([direct_of(steps)] if direct else steps, [x, weight, y])
    return y


def direct_of(steps):
    """The step along taps that the last of `steps` would take."""
    last = steps[-1]
    return last._replace(grain=-last.grain, scratch=0)


def to_input(g, weight, padding, size):
    stride, dilation, groups = HOW
    d_x = np.full((g.shape[0], weight.shape[1], *size), np.nan, "float32")
    steps = conv.convolve("float32", layout(g), layout(weight), layout(d_x), stride, padding, dilation, groups,
                             transposed=True)
    assert is_winograd(steps)
    execute(steps, [g, weight, d_x])
    return d_x


def to_weight(x, g, padding, direct=False):
    stride, dilation, groups = HOW
    made = np.full((g.shape[1], x.shape[1], 3, 3), np.nan, "float32")
    steps = conv.convolve_weight("float32", layout(x), layout(g), layout(made), stride, padding, dilation, groups)
    assert is_winograd(steps)
    execute([direct_of(steps)] if direct else steps, [x, g, made])
    return made


def weight_truth(x, g, padding):
    """The gradient of a weight: what a convolution of images by gradients gives, channels and batch exchanged."""
    return convolved(x.swapaxes(0, 1).astype(float), g.swapaxes(0, 1).astype(float), HOW[0], padding, HOW[1],
                     HOW[2]).swapaxes(0, 1)


def bound(x, weight, padding):
    """What a result may be off by: rounding, as much as the sum of all magnitudes in its tile allows."""
    magnitude = convolved(abs(x).astype(float), abs(weight).astype(float), *HOW[:1], padding, *HOW[1:])
    return 40 * 2.0 ** -24 * magnitude.max(initial=1e-30)


def truth(x, weight, padding):
    return convolved(x.astype(float), weight.astype(float), HOW[0], padding, HOW[1], HOW[2])


sizes = st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 40), st.integers(1, 19), st.integers(1, 40),
                  st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes, st.sampled_from("rows channels_last strided".split()), st.integers(0, 2 ** 31))
def test_convolutions_of_any_size(given_sizes, laid, seed):
    n, channels, out, h, w, down, across = given_sizes
    h, w = max(h, 3 - 2 * down), max(w, 3 - 2 * across)
    rng, padding = np.random.default_rng(seed), (down, across)
    x = lay(rng.standard_normal((n, channels, h, w)).astype("float32"), laid)
    weight = lay(rng.standard_normal((out, channels, 3, 3)).astype("float32"), laid)
    want = truth(x, weight, padding)
    assert abs(forward(x, weight, padding) - want).max() <= bound(x, weight, padding)
    g = lay(rng.standard_normal(want.shape).astype("float32"), laid)
    # the gradient of the input is the transposed map: <g, conv(other)> = <to_input(g), other> for every other
    made = to_input(g, weight, padding, (h, w))
    other = rng.integers(-1, 2, x.shape).astype(float)
    near = (abs(g).astype(float) * convolved(abs(other), abs(weight).astype(float), HOW[0], padding, HOW[1],
                                             HOW[2])).sum()
    gap = (g * truth(other, weight, padding)).sum() - (made * other).sum()
    assert abs(gap) <= 160 * 2.0 ** -24 * max(near, 1e-30)
    exact, most = weight_truth(x, g, padding), weight_truth(abs(x), abs(g), padding)
    assert abs(to_weight(x, g, padding) - exact).max() <= 40 * 2.0 ** -24 * most.max()


def lay(x, how):
    """The same numbers, in other memory."""
    if how == "channels_last":
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if how == "strided":
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), np.nan, x.dtype)
        wide[..., 1::2] = x
        return wide[..., 1::2]
    return x


SHAPES = {"rows of tiles in several blocks": ((3, 24, 50, 41), 20), "several parts of a row": ((1, 9, 6, 301), 11),
          "filters in other blocks": ((2, 140, 5, 6), 300), "many of both": ((2, 300, 7, 7), 270),
          "one tile": ((1, 8, 2, 2), 8)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("apart", [False, True])
def test_larger_convolutions_do_not_show_the_threads(name, apart, set_threads, monkeypatch):
    monkeypatch.setattr(winograd, "NEAR_FILTER_BYTES", 0)
    monkeypatch.setattr(winograd, "FAR_FILTER_BYTES", 0 if apart else 1 << 40)
    shape, out = SHAPES[name]
    rng = np.random.default_rng(3)
    x, weight = [rng.standard_normal(s).astype("float32") for s in (shape, (out, shape[1], 3, 3))]
    results = []
    g = rng.standard_normal(truth(x, weight, (1, 1)).shape).astype("float32")
    for count in (1, 2, 5):
        set_threads(count)
        results.append((forward(x, weight, (1, 1)), to_input(g, weight, (1, 1), shape[2:]), to_weight(x, g, (1, 1))))
    assert abs(results[0][0] - truth(x, weight, (1, 1))).max() <= bound(x, weight, (1, 1))
    most = weight_truth(abs(x), abs(g), (1, 1)).max()
    assert abs(results[0][2] - weight_truth(x, g, (1, 1))).max() <= 40 * 2.0 ** -24 * most
    for made in results[1:]:
        for one, first in zip(made, results[0], strict=True):
            assert one.tobytes() == first.tobytes()


def test_on_other_machines(vector_bytes):                       # noqa: F811
    rng = np.random.default_rng(5)
    for shape, out in ((2, 20, 9, 37), 9), ((3, 33, 4, 4), 40), ((1, 5, 40, 30), 6):
        x, weight = [rng.standard_normal(s).astype("float32") for s in (shape, (out, shape[1], 3, 3))]
        want = truth(x, weight, (1, 1))
        assert abs(forward(x, weight, (1, 1)) - want).max() <= bound(x, weight, (1, 1))
        exact, most = weight_truth(x, want, (1, 1)), weight_truth(abs(x), abs(want), (1, 1)).max()
        assert abs(to_weight(x, want.astype("float32"), (1, 1)) - exact).max() <= 40 * 2.0 ** -24 * most


SPECIAL = {"an infinity": np.inf, "minus infinity": -np.inf, "a NaN": np.nan, "large": 1e38, "huge": 3e38}


@pytest.mark.parametrize("where", ["input", "weight", "both"])
@pytest.mark.parametrize("value", SPECIAL)
def test_what_is_not_finite_is_computed_directly(where, value, set_threads):
    """As the direct step has it, bit by bit: an infinity shows in the outputs that read it, and in no others."""
    rng = np.random.default_rng(1)
    for count in (1, 2):
        set_threads(count)
        x, weight = [rng.standard_normal(s).astype("float32") for s in ((2, 12, 9, 10), (7, 12, 3, 3))]
        if where != "weight":
            x[1, 3, 4, 5] = SPECIAL[value]
            x[1, 3, 4, 6] = x[1, 3, 5, 5] = 1.0 if np.isinf(SPECIAL[value]) else SPECIAL[value]
        if where != "input":
            weight[2, 3, 1, 1] = SPECIAL[value]
        made, direct = forward(x, weight, (1, 1)), forward(x, weight, (1, 1), direct=True)
        if np.isfinite(direct).all() and np.isfinite(made).all():            # nothing overflowed on the way
            assert abs(made.astype(float) - direct).max() <= 2 * bound(x, weight, (1, 1))
        else:
            assert made.tobytes() == direct.tobytes()


@pytest.mark.parametrize("where", ["input", "gradient"])
@pytest.mark.parametrize("value", SPECIAL)
def test_gradients_of_weights_that_are_not_finite_are_computed_directly(where, value):
    rng = np.random.default_rng(4)
    x, g = [rng.standard_normal(s).astype("float32") for s in ((2, 5, 9, 10), (2, 7, 9, 10))]
    (x if where == "input" else g)[1, 3, 4, 5:7] = SPECIAL[value]
    made, direct = to_weight(x, g, (1, 1)), to_weight(x, g, (1, 1), direct=True)
    if np.isfinite(direct).all() and np.isfinite(made).all():
        assert abs(made.astype(float) - direct).max() <= 80 * 2.0 ** -24 * weight_truth(abs(x), abs(g), (1, 1)).max()
    else:
        assert made.tobytes() == direct.tobytes()


def test_an_overflow_on_the_way_is_not_seen():
    """The sums of a tile's inputs overflow, and the convolution does not."""
    x, weight = np.zeros((1, 1, 6, 6), "float32"), np.zeros((1, 1, 3, 3), "float32")
    x[...] = np.where(np.indices((6, 6)).sum(0) % 2, -3e38, 3e38)
    weight[0, 0, 1, 1] = 1.0
    assert np.array_equal(forward(x, weight, (1, 1)), x)


def test_small_integers_are_exact():
    """Halves and quarters of them are, so nothing is rounded."""
    rng = np.random.default_rng(2)
    x, weight = [rng.integers(-9, 10, s).astype("float32") for s in ((2, 30, 11, 12), (13, 30, 3, 3))]
    assert np.array_equal(forward(x, weight, (1, 1)), truth(x, weight, (1, 1)))


@pytest.mark.parametrize("channels", [64, 256, 512])
def test_the_error_is_that_of_the_direct_way(channels):
    rng = np.random.default_rng(channels)
    x, weight = [rng.standard_normal(s).astype("float32") for s in ((2, channels, 8, 8), (16, channels, 3, 3))]
    want = truth(x, weight, (1, 1))
    errors = [np.sqrt(np.mean((forward(x, weight, (1, 1), direct) - want) ** 2)) for direct in (False, True)]
    assert errors[0] <= 2 * errors[1]
    g = rng.standard_normal(want.shape).astype("float32")
    errors = [np.sqrt(np.mean((to_weight(x, g, (1, 1), direct) - weight_truth(x, g, (1, 1))) ** 2))
              for direct in (False, True)]
    assert errors[0] <= 2 * errors[1]


OTHERS = {"strided": dict(stride=(2, 2)), "dilated": dict(dilation=(2, 2)), "grouped": dict(groups=2),
          "of another size": dict(kernel=(3, 5)), "in float64": dict(dtype="float64"),
          "along a line": dict(size=(30,), kernel=(3,)), "in space": dict(size=(5, 9, 9), kernel=(3, 3, 3))}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_direct(name):
    how = dict(stride=(1, 1), dilation=(1, 1), groups=1, kernel=(3, 3), dtype="float32", size=(20, 20)) | OTHERS[name]
    n, kernel = len(how["size"]), how["kernel"]
    stride, dilation = [tuple(how[word][:1]) * n for word in ("stride", "dilation")]
    out = [(s - d * (k - 1) - 1) // t + 1 for s, d, k, t in zip(how["size"], dilation, kernel, stride)]
    x, weight, y = [layout(np.empty(s, how["dtype"])) for s in
                    ((2, 16, *how["size"]), (16, 16 // how["groups"], *kernel), (2, 16, *out))]
    steps = conv.convolve(how["dtype"], x, weight, y, stride, (0,) * n, dilation, how["groups"])
    assert len(steps) == 1 and not steps[0].scratch
    steps = conv.convolve_weight(how["dtype"], x, y, weight, stride, (0,) * n, dilation, how["groups"])
    assert len(steps) == 1 and not steps[0].scratch


def test_parts_of_a_transposed_convolution():
    """By 6 x 6 with steps of two: each residue is a convolution by 3 x 3 that writes every other row and column."""
    rng = np.random.default_rng(6)
    g, weight = [rng.standard_normal(s).astype("float32") for s in ((2, 9, 7, 8), (9, 5, 6, 6))]
    how = (2, 2), (2, 2), (1, 1), 1
    made = np.full((2, 5, 14, 16), np.nan, "float32")
    steps = conv.convolve("float32", layout(g), layout(weight), layout(made), *how, transposed=True)
    assert len(steps) == 12
    execute(steps, [g, weight, made])
    other = rng.standard_normal(made.shape)
    want = (g * convolved(other, weight.astype(float), *how)).sum()
    near = (abs(g) * convolved(abs(other), abs(weight).astype(float), *how)).sum()
    assert abs((made * other).sum() - want) <= 40 * 2.0 ** -24 * near


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_threads_do_not_decide_which_way_is_taken(lanes, monkeypatch):
    """And no step takes more than a thread's room."""
    machine = SimpleNamespace(lanes=lanes, size=4, registers=32, rows=lambda width: min(8, (31 - width) // width))
    taps = [conv.Tap(3 * r + s, 0, r - 1, s - 1) for r in range(3) for s in range(3)]
    for (n, side), channels, out in itertools.product(((1, 2), (1, 7), (32, 4), (2, 33), (32, 32), (1, 500)),
                                                      (1, 3, 16, 64, 130, 512, 700, 3000), (1, 40, 512, 2100)):
        x, y, weight = [conv.in_three(*layout(np.broadcast_to(np.float32(0), shape))) for shape in
                        ((n, channels, side, side), (n, out, side, side), (out, channels, 3, 3))]
        forth = conv.Convolution("float32", x, taps, y, 0, (1, 1, 1), out, channels, 9, 9, 9, 1)
        back = winograd.WeightGradient("float32", x, taps, y, weight, (1, 1, 1), 1)
        for cut, job, rooms in ((winograd.cut, forth, ("x_room", "v_room", "p_room")),
                                (winograd.cut_weight, back, ("x_room", "v_room", "g_room", "t_room"))):
            made = []
            for threads_now in (1, 2, 16, 64):
                monkeypatch.setattr(winograd, "get_num_threads", lambda count=threads_now: count)
                made.append(cut(machine, job))
            assert len({found is None for found in made}) == 1
            for found in made:
                line = found and 4 * found["cols"] + 4 * lanes             # of outputs, in `tiles`
                assert found is None or in_room(4, line, *[found[room] for room in rooms]), (n, side, found)
            if cut is winograd.cut_weight and made[0]:         # what shows in the order of sums
                assert len({(found["rows"], found["cols"], found["share"]) for found in made}) == 1


def test_arithmetic_is_counted_once():
    x, weight, y = [layout(np.empty(s, "float32")) for s in ((2, 16, 8, 8), (16, 16, 3, 3), (2, 16, 8, 8))]
    for steps in (conv.convolve("float32", x, weight, y, (1, 1), (1, 1), (1, 1)),
                  conv.convolve_weight("float32", x, y, weight, (1, 1), (1, 1), (1, 1))):
        assert sum(step.share for step in steps) == 16 / 36


@pytest.mark.pinned
def test_the_switch(monkeypatch):
    monkeypatch.undo()
    x, weight = flambeau.randn(8, 64, 16, 16), flambeau.randn(64, 64, 3, 3)

    def library_steps():
        y = flambeau.nn.functional.conv2d(x, weight, padding=1)
        return str(flambeau.plans.of(y)).count("library")

    with flambeau.config.using(executor="native"):
        flambeau.cpu.synchronize()
        assert library_steps() == 3
        with flambeau.config.using(convolutions="direct"):
            assert library_steps() == 1
        assert library_steps() == 3


@pytest.mark.pinned
@pytest.mark.parametrize("count", [1, 2])
def test_training_means_the_same_on_both_executors(count):
    def step(executor):
        flambeau.manual_seed(0)
        with flambeau.config.using(executor=executor, num_threads=count):
            net = flambeau.nn.Sequential(flambeau.nn.Conv2d(12, 18, 3, padding=1), flambeau.nn.ReLU(),
                                         flambeau.nn.Conv2d(18, 10, 3, bias=False))
            x = flambeau.randn(3, 13, 12, 12)[:, 1:].requires_grad_()
            out = net(x)
            out.square().mean().backward()
            return [t.detach().numpy().copy() for t in (out, x.grad, *[p.grad for p in net.parameters()])]

    for native, reference in zip(step("native"), step("reference"), strict=True):
        np.testing.assert_allclose(native, reference, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("width, fma", [(16, True), (32, False), (32, True), (64, True)])
def test_the_text_for_other_machines_is_sound(width, fma):
    llvm = pytest.importorskip("llvmlite.binding")
    made = winograd_kernels.WinogradKernels("float", Target(width, fma=fma))
    for text in (made.filters("f"), made.inputs("f"), made.tiles("f"), made.gradients("f"),
                 made.products("f"), made.weights("f"), made.to_tiles("f"), made.from_tiles("f"),
                 made.to_gradients("f"), made.to_weights("f"), *[made.filter_block("f", how) for how in range(3)]):
        llvm.parse_assembly(text).verify()

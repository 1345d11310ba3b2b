"""Autocast: which dtype an operation runs in, where a region begins and ends, and what happens to gradients."""

import functools
import threading

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.tensor import overrides
from flambeau.tensor.autocast import FLOAT32_NAMES, LOWER_PRECISION_NAMES, WIDEST_DTYPE_NAMES, cast_of_operation
from tests.patience import PATIENCE

F = torch.nn.functional
HALF = {torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16}


@pytest.fixture(autouse=True)
def nothing_stays_on():
    yield
    assert overrides.regions == 0 and not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


x, y, image = numbers(4, 3), numbers(3, 5, seed=1), numbers(2, 3, 8, 8, seed=2)
square = numbers(3, 3) @ numbers(3, 3).t() + 3 * torch.eye(3)
LOWERED = {
    "matmul": lambda: x @ y, "mm": lambda: x.mm(y), "bmm": lambda: torch.bmm(x[None], y[None]),
    "addmm": lambda: torch.addmm(torch.ones(5), x, y), "linear": lambda: F.linear(x, y.t()),
    "conv2d": lambda: F.conv2d(image, numbers(4, 3, 3, 3)), "einsum": lambda: torch.einsum("ij,jk->ik", x, y),
    "conv_transpose1d": lambda: F.conv_transpose1d(image[0], numbers(8, 4, 2)),
    "prelu": lambda: F.prelu(x, torch.tensor([0.5])),
    "attention": lambda: F.scaled_dot_product_attention(image, image, image),
}
WIDENED = {
    "prod": lambda a: a.prod(), "trace": lambda a: a[:3].trace(), "mse_loss": lambda a: F.mse_loss(a, a),
    "cross_entropy": lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2, 0])),
    "bce_with_logits": lambda a: F.binary_cross_entropy_with_logits(a, torch.ones(4, 3)),
    "cdist": lambda a: torch.cdist(a, a), "quantile": lambda a: a.quantile(0.5),
    "reflection_pad2d": lambda a: F.pad(a[None, None], (1, 1, 1, 1), "reflect"),
    "kl_div": lambda a: F.kl_div(a, a.exp(), reduction="sum"),
    "avg_pool3d": lambda a: F.avg_pool3d(a[None, None, None], 1),
}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", LOWERED)
def test_what_gains_runs_in_the_lower_precision(name, dtype):
    exact = LOWERED[name]()
    with torch.autocast("cpu", dtype=dtype):
        made = LOWERED[name]()
    assert exact.dtype is torch.float32 and made.dtype is dtype
    assert (made.float() - exact).abs().max() < 0.05 * exact.abs().max()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", WIDENED)
def test_what_loses_runs_in_float32(name, dtype):
    with torch.autocast("cpu", dtype=dtype):
        assert WIDENED[name](x.to(dtype)).dtype is torch.float32
        assert WIDENED[name](x).dtype is torch.float32


@pytest.mark.parametrize("form", [torch.mm, torch.Tensor.mm])
def test_calls_that_were_seen_outside_of_a_region(form):
    """They are found by their operands alone while nobody has to be asked; a region asks again, in its thread."""
    def dtypes(): return {form(x, y).dtype for _ in range(3)}
    seen = []
    for _ in range(2):
        assert dtypes() == {torch.float32}
        with torch.autocast("cpu"):
            assert dtypes() == {torch.bfloat16}
            other = threading.Thread(target=lambda: seen.append(dtypes()))
            other.start()
            other.join(PATIENCE)
            with torch.autocast("cpu", enabled=False):
                assert dtypes() == {torch.float32}
    assert dtypes() == {torch.float32} and seen == [{torch.float32}] * 2


def test_others_run_in_what_reaches_them():
    with torch.autocast("cpu"):
        half = x.bfloat16()
        assert (half + half).dtype is half.exp().dtype is half.softmax(1).dtype is half.sum().dtype is torch.bfloat16
        assert (half + x).dtype is x.exp().dtype is torch.float32
        assert F.layer_norm(x, (3,)).dtype is torch.float32


def test_some_run_in_the_widest():
    with torch.autocast("cpu"):
        half = x.bfloat16()
        assert torch.cat([half, x]).dtype is torch.stack([half, x]).dtype is torch.float32
        assert torch.cat([half, half]).dtype is torch.bfloat16
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            torch.cat([half, x.half()])


def test_what_is_left_alone():
    double, whole = x.double(), torch.arange(12).reshape(4, 3)
    with torch.autocast("cpu"):
        assert (double @ y.double()).dtype is torch.float64
        assert (whole @ whole.t()).dtype is torch.int64
        assert torch.zeros(4, 5).addmm_(x, y).dtype is torch.float32                     # in place
        assert torch.mm(x, y, out=torch.empty(4, 5)).dtype is torch.float32
        assert torch.empty(4, 3, device="meta").matmul(torch.empty(3, 2, device="meta")).dtype is torch.float32


def test_every_listed_name_is_an_operation_or_not_here_yet():
    names = set(LOWER_PRECISION_NAMES + FLOAT32_NAMES + WIDEST_DTYPE_NAMES)
    assert len(names) == len(LOWER_PRECISION_NAMES + FLOAT32_NAMES + WIDEST_DTYPE_NAMES)
    absent = {"linalg.householder_product", "geqrf", "orgqr", "ormqr", "stft"} | \
        {name for name in names if name.startswith("fft.")}
    assert len(cast_of_operation) >= len(names - absent) - 5  # a few names are of one operation


@pytest.mark.parametrize("dtype", HALF)
def test_values_are_those_of_rounded_operands(dtype):
    rounded = [a.numpy().astype(HALF[dtype]).astype(np.float64) for a in (x, y)]
    with torch.autocast("cpu", dtype=dtype):
        made = (x @ y).double().numpy()
    np.testing.assert_allclose(made, rounded[0] @ rounded[1], rtol=2 ** -7 if dtype is torch.bfloat16 else 2 ** -10,
                               atol=1e-2)


# --- gradients ------------------------------------------------------------------------------------------------------


def test_gradients_come_back_in_the_dtype_of_the_parameter():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    loss = net(x).square().mean()
    loss.backward()
    exact = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with torch.autocast("cpu"):
        out = net(x)
        lowered = out.float().square().mean()
    assert out.dtype is torch.bfloat16
    lowered.backward()
    for p, wanted in zip(net.parameters(), exact, strict=True):
        assert p.grad.dtype is torch.float32
        assert (p.grad - wanted).abs().max() <= 0.05 * wanted.abs().max() + 1e-3


def test_a_backward_inside_a_region_gives_the_same():
    weight = numbers(5, 3).requires_grad_()
    with torch.autocast("cpu"):
        loss = F.linear(x, weight).float().square().sum()
        loss.backward(retain_graph=True)
    inside = weight.grad.clone()
    weight.grad = None
    loss.backward()
    assert torch.equal(inside, weight.grad)
    # what was recorded outside has float32 gradients, wherever backward is called
    weight.grad = None
    loss = F.linear(x, weight).square().sum()
    loss.backward(retain_graph=True)
    wanted, weight.grad = weight.grad, None
    with torch.autocast("cpu"):
        loss.backward()
    torch.testing.assert_close(weight.grad, wanted)


def test_a_parameter_is_cast_once_in_a_region():
    weight = numbers(5, 3).requires_grad_()

    def cast_of(out):
        found, _ = next(edge for edge in out.grad_fn.next_functions if edge[0] is not None)
        while found.name() != "ToCopyBackward0":
            found = next(node for node, _ in found.next_functions if node is not None)
        return found
    with torch.autocast("cpu"):
        assert cast_of(F.linear(x, weight)) is cast_of(F.linear(x, weight))
        with torch.autocast("cpu"):
            inner = cast_of(F.linear(x, weight))
        assert inner is cast_of(F.linear(x, weight))                   # it lives until the outermost region ends
        torch.clear_autocast_cache()
        assert inner is not cast_of(F.linear(x, weight))
    with torch.autocast("cpu", cache_enabled=False):
        assert not torch.is_autocast_cache_enabled()
        assert cast_of(F.linear(x, weight)) is not cast_of(F.linear(x, weight))
    assert torch.is_autocast_cache_enabled()


def test_a_kept_cast_is_never_stale():
    weight = torch.ones(2, 3, requires_grad=True)
    with torch.autocast("cpu"):
        with torch.no_grad():
            before = F.linear(x, weight)
        assert F.linear(x, weight).requires_grad                       # made without a graph, asked for with one
        with torch.no_grad():
            weight.mul_(2)
        after = F.linear(x, weight)
    torch.testing.assert_close(after.float(), 2 * before.float(), rtol=2 ** -7, atol=0.02)


def test_training_in_bfloat16_learns():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    data = numbers(64, 2)
    target = data[:, :1] * data[:, 1:]
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.02), []
    for _ in range(60):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(net(data), target)
        assert loss.dtype is torch.float32
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


# --- regions --------------------------------------------------------------------------------------------------------


def lowered():
    return (x @ y).dtype


def test_regions_nest_and_end():
    assert lowered() is torch.float32
    with torch.autocast("cpu") as region:
        assert isinstance(region, torch.autocast) and lowered() is torch.bfloat16
        with torch.autocast("cpu", dtype=torch.float16):
            assert lowered() is torch.float16 and torch.get_autocast_dtype("cpu") is torch.float16
        assert lowered() is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert lowered() is torch.float32 and not torch.is_autocast_enabled("cpu")
            with torch.autocast("cpu"):
                assert lowered() is torch.bfloat16
        assert lowered() is torch.bfloat16
    assert lowered() is torch.float32


def test_a_region_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), torch.autocast("cpu"):
        1 / 0  # noqa: B018
    assert lowered() is torch.float32


def test_as_a_decorator():
    @torch.autocast("cpu", dtype=torch.float16)
    def made(depth):
        "says"
        return [lowered(), *(made(depth - 1) if depth else [])]
    assert made(2) == [torch.float16] * 3 and made.__doc__ == "says"         # recursion leaves nothing on
    assert lowered() is torch.float32


def test_one_region_object_serves_many_threads():
    region, found = torch.autocast("cpu"), {}
    inside, leave = threading.Barrier(2, timeout=PATIENCE), threading.Event()

    def work():
        with region:
            inside.wait()
            leave.wait(20)
            found["thread"] = lowered()
    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    found["main"] = lowered()                                                # on elsewhere, not here
    with region:
        leave.set()
        thread.join()
        found["region"] = lowered()
    assert found == {"main": torch.float32, "thread": torch.bfloat16, "region": torch.bfloat16}


def test_the_switches_by_themselves():
    torch.set_autocast_enabled("cpu", True)
    try:
        assert torch.is_autocast_enabled("cpu") and lowered() is torch.bfloat16
        torch.set_autocast_dtype("cpu", torch.float16)
        assert lowered() is torch.float16
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", torch.bfloat16)
    assert torch.autocast_increment_nesting() == 1 and torch.autocast_decrement_nesting() == 0
    torch.set_autocast_cache_enabled(False)
    assert not torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(True)
    assert not torch.is_autocast_enabled()                                   # without a device: CUDA
    with pytest.warns(DeprecationWarning, match="is_autocast_enabled"):
        assert not torch.is_autocast_cpu_enabled()
    with pytest.warns(DeprecationWarning):
        assert torch.get_autocast_cpu_dtype() is torch.bfloat16


def test_what_is_refused_or_warned_about():
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(torch.device("cpu"))
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        torch.autocast("meta")
    with pytest.raises(RuntimeError, match="device"):
        torch.autocast("nonsense")
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast("cpu", dtype=torch.float32):
        assert lowered() is torch.float32
    with pytest.warns(UserWarning, match="CUDA is not available"), torch.autocast("cuda"):
        assert lowered() is torch.float32
    assert torch.amp.is_autocast_available("cpu") and not torch.amp.is_autocast_available("meta")


def test_the_older_names():
    with pytest.warns(FutureWarning, match=r"torch.amp.autocast\('cpu'"):
        region = torch.cpu.amp.autocast(dtype=torch.float16)
    with region:
        assert lowered() is torch.float16
    with pytest.warns(FutureWarning), pytest.warns(UserWarning, match="CUDA is not available"):
        region = torch.cuda.amp.autocast()
    with region:
        assert lowered() is torch.float32


# --- functions of the user's own, subclasses, checkpoints -----------------------------------------------------------


def test_custom_functions():
    seen = {}

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen["backward"] = g.mm(b.t()).dtype, torch.is_autocast_enabled("cpu")
            return g.mm(b.t()), a.t().mm(g)
    a, b = numbers(2, 3).requires_grad_(), numbers(3, 2).requires_grad_()
    with torch.autocast("cpu"):
        out = Product.apply(a, b)
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()                                             # outside, as it should be
    assert seen["backward"] == (torch.bfloat16, True) and a.grad.dtype is torch.float32

    class Exact(torch.autograd.Function):
        @staticmethod
        @functools.partial(torch.amp.custom_fwd, device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, a, parts):
            seen["forward"] = a.dtype, parts["b"][0].dtype, a.mm(parts["b"][0]).dtype
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            seen["exact"] = torch.is_autocast_enabled("cpu")
            return g * 2, None
    with torch.autocast("cpu"):
        Exact.apply(a.bfloat16(), {"b": [b.bfloat16()]}).sum().backward()
    assert seen["forward"] == (torch.float32,) * 3 and seen["exact"] is False
    with pytest.raises(ValueError, match="device_type"):
        torch.amp.custom_fwd(device_type=1)


def test_overrides_see_the_call_before_it_is_cast():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append([a._spec.dtype for a in args])
            return super().__torch_function__(func, types, args, kwargs)
    with torch.autocast("cpu"):
        made = torch.mm(x.as_subclass(Watched), y)
    assert seen == [[torch.float32, torch.float32]]
    assert made._spec.dtype is torch.bfloat16 and isinstance(made, Watched)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_runs_again_as_it_ran(use_reentrant):
    weight, data = numbers(5, 3).requires_grad_(), x.clone().requires_grad_()

    def stretch(a):
        return F.linear(a, weight).tanh()
    with torch.autocast("cpu"):
        plain = stretch(data)
        again = torch.utils.checkpoint.checkpoint(stretch, data, use_reentrant=use_reentrant)
    plain.float().sum().backward()
    wanted, weight.grad = weight.grad, None
    again.float().sum().backward()
    assert wanted.dtype is weight.grad.dtype is torch.float32
    torch.testing.assert_close(weight.grad, wanted)


def test_a_compiled_step_casts_too():
    weight = numbers(5, 3)

    @torch.compile
    def made(a):
        with torch.autocast("cpu"):
            return F.linear(a, weight)
    for _ in range(4):
        assert made(x).dtype is torch.bfloat16

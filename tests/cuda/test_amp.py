"""Mixed precision on CUDA: the dtypes that PyTorch's lists give, and gradients that are scaled and unscaled."""
import pytest

import flambeau as torch
from flambeau.backends.cuda import driver
from flambeau.tensor import autocast as lists
from flambeau.tensor.forms import namespace

F = torch.nn.functional
HALF, BFLOAT, FLOAT, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
CUDA_NAMES = (lists.CUDA_LOWER_PRECISION_NAMES, lists.CUDA_FLOAT32_NAMES, lists.CUDA_FLOAT32_RESULT_NAMES,
              lists.CUDA_WIDEST_DTYPE_NAMES, lists.CUDA_REFUSED_NAMES, lists.CUDA_SEE_THROUGH_NAMES)
NOT_OURS = {"conv_tbc", "native_layer_norm", "frobenius_norm", "nuclear_norm"}
PARTS = {"_attend", "_rdiv"}             # of other operations


@pytest.fixture(params=["simulated", "gpu"])
def device(request):
    """The driver of simulated devices; and that of the GPUs, where there are any."""
    if request.param == "simulated":
        yield request.getfixturevalue("simulated")
        return
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    yield driver.current()
    vars(driver.current()).pop("download", None)


def test_every_name_in_the_lists_is_an_operations():
    names = [name for some in CUDA_NAMES for name in some]
    assert len(names) == len(set(names))
    known = {f"{prefix}.{name}".lstrip(".") for prefix, functions in namespace.items() for name in functions}
    assert set(names) - known == NOT_OURS | PARTS


def x(dtype, *shape, on="cuda"):
    return torch.ones(shape or (4, 4), dtype=dtype, device=on)


LOWER = {
    "mm": lambda a: torch.mm(a, a), "matmul": lambda a: a @ a, "bmm": lambda a: torch.bmm(a[None], a[None]),
    "mv": lambda a: torch.mv(a, a[0]), "addmm": lambda a: torch.addmm(a, a, a),
    "addmv": lambda a: torch.addmv(a[0], a, a[0]),
    "addr": lambda a: torch.addr(a, a[0], a[0]), "baddbmm": lambda a: torch.baddbmm(a[None], a[None], a[None]),
    "einsum": lambda a: torch.einsum("ij,jk->ik", a, a), "linear": lambda a: F.linear(a, a, a[0]),
    "conv1d": lambda a: F.conv1d(a[None], a[:, :, None]), "prelu": lambda a: F.prelu(a, a[0, :1]),
    "conv2d": lambda a: F.conv2d(a[None, None], a[None, None]),
    "conv_transpose2d": lambda a: F.conv_transpose2d(a[None, None], a[None, None]),
    "multi_dot": lambda a: torch.linalg.multi_dot([a, a, a]), "vecdot": lambda a: torch.linalg.vecdot(a, a),
    "attention": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]),
}
FLOAT32 = {
    "exp": lambda a: a.exp(), "torch.exp": torch.exp, "log": lambda a: a.log(), "log1p": torch.log1p,
    "**": lambda a: a ** 2, "pow": lambda a: torch.pow(a, 2), "2 **": lambda a: 2 ** a, "square": torch.square,
    "rsqrt": lambda a: a.rsqrt(), "reciprocal": torch.reciprocal, "tan": lambda a: a.tan(),
    "softplus": F.softplus, "layer_norm": lambda a: F.layer_norm(a, (4,)), "rms_norm": lambda a: F.rms_norm(a, (4,)),
    "group_norm": lambda a: F.group_norm(a, 2), "softmax": lambda a: a.softmax(-1),
    "F.softmax": lambda a: F.softmax(a, -1),
    "log_softmax": lambda a: F.log_softmax(a, -1), "sum": lambda a: a.sum(), "sum dim": lambda a: torch.sum(a, 1),
    "prod": lambda a: a.prod(), "cumsum": lambda a: a.cumsum(0), "norm": lambda a: a.norm(),
    "vector_norm": torch.linalg.vector_norm, "logsumexp": lambda a: a.logsumexp(0),
    "mse_loss": lambda a: F.mse_loss(a, a), "l1_loss": lambda a: F.l1_loss(a, a),
    "cross_entropy": lambda a: F.cross_entropy(a, torch.zeros(4, dtype=torch.int64, device="cuda")),
    "with_logits": lambda a: F.binary_cross_entropy_with_logits(a, a), "cosine": lambda a: F.cosine_similarity(a, a),
    "interpolate": lambda a: F.interpolate(a[None, None], scale_factor=2.0), "softmin": lambda a: F.softmin(a, 0),
}
AS_THEY_ARE = {
    "add": lambda a: a + 1, "mul": lambda a: a * a, "div": lambda a: a / 3, "relu": torch.relu, "gelu": F.gelu,
    "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "mean": lambda a: a.mean(), "var": lambda a: a.var(),
    "std": lambda a: a.std(), "max": lambda a: a.max(), "sqrt": torch.sqrt, "dropout": lambda a: F.dropout(a, 0.5),
    "batch_norm": lambda a: F.batch_norm(a, None, None, training=True), "elu": F.elu, "selu": F.selu, "mish": F.mish,
    "max_pool2d": lambda a: F.max_pool2d(a[None, None], 2), "avg_pool2d": lambda a: F.avg_pool2d(a[None, None], 2),
    "logsigmoid": F.logsigmoid, "hardswish": F.hardswish, "cat": lambda a: torch.cat([a, a]),
    "softmax of a dtype": lambda a: a.softmax(-1, dtype=a.dtype), "sum of a dtype": lambda a: a.sum(dtype=a.dtype),
}


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("name", LOWER)
def test_products_are_of_the_lower_precision(name, dtype, device):
    with torch.autocast("cuda", dtype=dtype):
        assert LOWER[name](x(FLOAT)).dtype is dtype and LOWER[name](x(dtype)).dtype is dtype
        if name != "attention":
            assert LOWER[name](x(DOUBLE)).dtype is DOUBLE
    assert LOWER[name](x(FLOAT)).dtype is FLOAT


@pytest.mark.parametrize("name", FLOAT32)
def test_what_loses_digits_is_float32(name, device):
    for _ in range(2):                                        # the second time a call is known
        assert FLOAT32[name](x(HALF)).dtype is HALF           # outside
        with torch.autocast("cuda"):
            assert FLOAT32[name](x(HALF)).dtype is FLOAT and FLOAT32[name](x(FLOAT)).dtype is FLOAT
            assert FLOAT32[name](x(DOUBLE)).dtype is DOUBLE


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_all_else_is_as_it_is(name, device):
    """Also where we compute it with operations that are cast when a program calls them."""
    with torch.autocast("cuda"):
        assert AS_THEY_ARE[name](x(HALF)).dtype is HALF and AS_THEY_ARE[name](x(FLOAT)).dtype is FLOAT


def test_the_widest_wins(device):
    with torch.autocast("cuda"):
        assert torch.dot(x(HALF, 3), x(FLOAT, 3)).dtype is FLOAT and torch.dot(x(HALF, 3), x(HALF, 3)).dtype is HALF
        assert torch.addcmul(x(HALF), x(FLOAT), x(HALF)).dtype is FLOAT
        assert F.bilinear(x(FLOAT, 2, 3), x(HALF, 2, 3), x(FLOAT, 5, 3, 3)).dtype is FLOAT
        with pytest.raises(RuntimeError, match="prioritize"):
            torch.dot(x(BFLOAT, 3), x(HALF, 3))
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x(FLOAT), x(FLOAT))


def test_what_pytorch_makes_of_others_is_seen_through(device):
    with torch.autocast("cuda", dtype=BFLOAT):
        assert F.normalize(x(BFLOAT)).dtype is FLOAT          # a norm, which is of float32
        attention = torch.nn.MultiheadAttention(4, 2).to("cuda").train()
        out, weights = attention(x(FLOAT, 3, 2, 4), x(FLOAT, 3, 2, 4), x(FLOAT, 3, 2, 4))
        assert out.dtype is BFLOAT


def test_regions_are_of_a_device(device):
    cpu, cuda = x(FLOAT, on="cpu"), x(FLOAT)
    with torch.autocast("cuda", dtype=BFLOAT):
        assert (cpu @ cpu).dtype is FLOAT and (cuda @ cuda).dtype is BFLOAT
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is BFLOAT
        with torch.autocast("cpu", dtype=HALF):
            assert (cpu @ cpu).dtype is HALF and (cuda @ cuda).dtype is BFLOAT
        with torch.autocast("cuda", enabled=False):
            assert (cuda @ cuda).dtype is FLOAT
        assert (cuda @ cuda).dtype is BFLOAT
    with torch.autocast("cuda"):
        assert (cuda @ cuda).dtype is HALF
    with torch.autocast("cuda:1", dtype=BFLOAT):
        assert (cuda @ cuda).dtype is BFLOAT
    assert not torch.is_autocast_enabled("cuda")


def test_the_older_names(device):
    with pytest.warns(FutureWarning):
        region = torch.cuda.amp.autocast(dtype=BFLOAT)
    with region:
        assert (x(FLOAT) @ x(FLOAT)).dtype is BFLOAT
    with pytest.warns(FutureWarning):
        assert torch.cuda.amp.GradScaler().is_enabled()


def test_a_step_in_mixed_precision(device):
    """Weights stay float32, their casts are made once in a region, and a checkpoint casts as the first run did."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 4))
    model.cuda()
    x_, y = torch.randn(16, 8, device="cuda"), torch.randint(4, (16,), device="cuda")
    expected = F.cross_entropy(model(x_), y)
    with torch.autocast("cuda", dtype=BFLOAT):
        out = model(x_)
        loss = F.cross_entropy(out, y)
        again = torch.utils.checkpoint.checkpoint(model, x_, use_reentrant=False)
        twice = F.cross_entropy(again, y)
    assert out.dtype is BFLOAT and loss.dtype is FLOAT
    torch.testing.assert_close(loss, expected, rtol=3e-2, atol=3e-2)
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    assert all(g.dtype is FLOAT for g in grads)
    model.zero_grad()
    twice.backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))


# --- GradScaler -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("fused", [False, True])
def test_scaling(optimizer, fused, device):
    model, twin = torch.nn.Linear(4, 3).cuda(), torch.nn.Linear(4, 3).cuda()
    twin.load_state_dict(model.state_dict())
    steps, plain = optimizer(model.parameters(), lr=0.1, fused=fused), optimizer(twin.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
    assert scaler.is_enabled()
    data = torch.randn(8, 4, device="cuda")
    for step in range(4):
        for one, optim_ in ((model, steps), (twin, plain)):
            optim_.zero_grad()
            loss = one(data).square().mean()
            if step == 1 and one is twin:
                continue
            if step == 1:
                loss = loss * float("inf")
            if one is twin:
                loss.backward()
                optim_.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optim_)
                scaler.update()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert scaler.get_scale() == 1024.0                       # halved once, doubled once
    assert scaler._scale.device.type == "cuda"


def test_one_wait_for_each_step(device):
    """Whether all gradients are finite is one look, however many parameters there are."""
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(6)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.ones(2, 4, device="cuda")).sum()).backward()
    torch.cuda.synchronize()
    seen, whole = [], device.download

    def download(*args, **kwargs):
        seen.append(args)
        return whole(*args, **kwargs)
    device.download = download
    scaler.unscale_(optimizer)
    assert not seen
    scaler.step(optimizer)
    assert len(seen) == 1
    scaler.update()
    assert len(seen) == 1

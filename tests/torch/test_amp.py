"""Autocast and GradScaler beside PyTorch's: the lists of operations, their dtypes and values, the scaler's life."""
import itertools
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_modules import module_db

from flambeau.tensor.autocast import FLOAT32_NAMES, LOWER_PRECISION_NAMES, WIDEST_DTYPE_NAMES
from tests.torch.harness import OPS, Mismatch, Unsupported, attempt, fb, function, to_fb, to_torch, torch_function
from tests.torch.test_modules import built, carried, described

# PyTorch's matrix products after a decomposition are in the lower precision, ours is one operation in float32; and a
# determinant of bfloat16, which it refuses elsewhere, is refused here too.
OTHERWISE = {"linalg.pinv", "linalg.pinv.hermitian", "linalg.det"}


# --- the lists ------------------------------------------------------------------------------------------------------

OURS = {"linear": "nn.functional.linear", "cross_entropy_loss": "nn.functional.cross_entropy",
        "nll_loss2d": "nn.functional.nll_loss",
        "multilabel_margin_loss_forward": "nn.functional.multilabel_margin_loss"}
# Parts of PyTorch's that have no name of their own here, quantisation, and a layout of convolutions nobody uses.
INTERNAL = {"_addmm_activation", "_convolution", "_grid_sampler_2d_cpu_fallback", "_lu_with_info",
            "_native_multi_head_attention", "mkldnn_rnn_layer", "fake_quantize_per_tensor_affine", "conv_tbc"}


def registered():
    """The operations for which PyTorch has autocast kernels on the CPU."""
    return {name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names()
            if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU")}


def test_the_lists_are_those_of_pytorch():
    ours = set(LOWER_PRECISION_NAMES + FLOAT32_NAMES + WIDEST_DTYPE_NAMES)

    def spelled(name):
        prefix, _, rest = name.partition("_")
        dotted = f"{prefix}.{rest}" if prefix in ("linalg", "fft") else name
        return {dotted, name, f"_{name}", f"nn.functional.{name}", OURS.get(name)}
    found = registered() - INTERNAL
    assert len(found) > 100
    assert [name for name in sorted(found) if not spelled(name) & ours] == []
    reached = set().union(*map(spelled, found))
    beside = {"nn.functional.max_unpool1d", "_attend"} | {name for name in ours if name.endswith("_with_indices")}
    assert ours - reached - beside == set()


# --- what operations give -------------------------------------------------------------------------------------------


def kinds(x):
    if isinstance(x, (torch.Tensor, fb.Tensor)):
        return str(x.dtype)
    return tuple(kinds(part) for part in x) if isinstance(x, (tuple, list)) else type(x).__name__


def leaves(x):
    return [x] if isinstance(x, (torch.Tensor, fb.Tensor)) else \
        [leaf for part in x for leaf in leaves(part)] if isinstance(x, (tuple, list)) else []


def under(lib, call, sample):
    def run():
        with lib.autocast("cpu"):
            return call(sample.input, *sample.args, **sample.kwargs)
    return attempt(run)


def lowered(x, dtype):
    """A sample's contents with its float tensors in `dtype`."""
    if isinstance(x, torch.Tensor):
        return x.detach().to(dtype) if x.is_floating_point() else x
    return type(x)(lowered(part, dtype) for part in x) if type(x) in (list, tuple) else x


def assert_near(got, want):
    """As near as the lower precision allows."""
    for a, b in zip(leaves(got), leaves(want), strict=True):
        if b.is_floating_point() and b.isfinite().any():
            a, b = to_torch(a).double(), b.detach().double()
            fine = (a - b).abs() <= 0.05 * b[b.isfinite()].abs().max() + 1e-2
            if not (fine | ~b.isfinite()).all():
                raise Mismatch(f"differs by {float((a - b).abs()[~fine].max()):.3g}")


# Its result is a factor, of which many are right; or it draws numbers.
UNDETERMINED = {"linalg.eig", "linalg.eigh", "linalg.svd", "svd", "linalg.qr", "qr", "empty", "empty_like", "new_empty",
                "empty_strided", "new_empty_strided", "empty_permuted", "nn.functional.gumbel_softmax",
                "nn.functional.multi_head_attention_forward"}


@pytest.mark.parametrize("op", [op for op in OPS if torch.float32 in op.dtypes and op.full_name not in OTHERWISE],
                         ids=lambda op: op.full_name)
def test_operations(op):
    call, ran = function(op), 0
    samples = itertools.islice(op.sample_inputs("cpu", torch.float32), 2)
    for sample, low in itertools.product(samples, (None, torch.bfloat16)):
        if low is not None:
            sample.input, sample.args = lowered(sample.input, low), lowered(sample.args, low)
            sample.kwargs = {name: lowered(held, low) for name, held in sample.kwargs.items()}
        try:
            twin = to_fb(sample)
        except Unsupported:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = under(torch, torch_function(op), sample)
            got = under(fb, call, twin)
        ran += 1
        if hasattr(want, "error"):                           # PyTorch cannot do it; nothing to compare with
            continue
        if hasattr(got, "error"):
            raise Mismatch(f"raises {got}, torch gives {kinds(want)}") from got.error
        if kinds(got) != kinds(want):
            raise Mismatch(f"gives {kinds(got)}, torch {kinds(want)}")
        if op.name not in UNDETERMINED:
            assert_near(got, want)
    if not ran:
        pytest.skip("no samples on this device")


# --- modules --------------------------------------------------------------------------------------------------------

NETS = {
    "mlp": ("nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))", (5, 6)),
    "cnn": ("nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), "
            "nn.Linear(36, 2))", (3, 2, 8, 8)),
    "transposed": ("nn.Sequential(nn.ConvTranspose1d(2, 3, 4, stride=2), nn.PReLU())", (2, 2, 5)),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_every_module_gives_the_dtypes_of_pytorch(info, training):
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    wrong = []
    for sample in itertools.islice((s for s in samples if s.forward_input is not None), 12):
        mine, theirs = (net.train(training) for net in built(info.module_cls, sample.constructor_input))
        given = sample.forward_input
        memo = {}
        args, kwargs = carried(given.args, memo), carried(given.kwargs, memo)
        with warnings.catch_warnings(), torch.autocast("cpu"), fb.autocast("cpu"):
            warnings.simplefilter("ignore")
            want = attempt(theirs, *given.args, **given.kwargs)
            if not hasattr(want, "error") and kinds(got := mine(*args, **kwargs)) != kinds(want):
                wrong.append(f"{described(sample)} gives {kinds(got)}, torch {kinds(want)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NETS)
def test_modules(name):
    text, shape = NETS[name]
    made = []
    for lib in (torch, fb):
        lib.manual_seed(0)
        net = eval(text, {"nn": lib.nn})
        with lib.autocast("cpu", dtype=lib.bfloat16):
            out = net(lib.randn(*shape))
            loss = (out ** 2).mean()
        loss.backward()
        made.append((out, loss, [p.grad for p in net.parameters()]))
    want, got = made
    assert kinds(got[:2]) == kinds(want[:2]) and kinds(got[2]) == kinds(want[2])
    assert_near(got, want)


# --- the scaler -----------------------------------------------------------------------------------------------------

LIVES = [
    "s.scale(w.sum()).backward(); s.step(o); s.update()",
    "s.scale(w.sum()).backward(); s.unscale_(o); s.step(o); s.update()",
    "s.scale(w.sum()).backward(); w.grad[0] = float('inf'); s.step(o); s.update(); s.scale(w.sum())",
    "s.scale(w.sum()).backward(); s.step(o); s.step(o)",
    "s.scale(w.sum()).backward(); s.step(o); s.unscale_(o)",
    "s.scale(w.sum()).backward(); s.unscale_(o); s.unscale_(o)",
    "s.step(o)", "s.unscale_(o)", "s.update()", "s.scale(w.sum()); s.step(o)", "s.scale(w.sum()); s.update()",
    "s.scale(w.sum()); s.update(3.0)", "s.scale(w.sum()); s.update(torch.tensor(4.0))",
    "s.scale(w.sum()); s.update(torch.ones(2))", "s.scale(3)", "s.scale([w, (w, w)])",
    "s.load_state_dict({})", "s.load_state_dict({'scale': 2.0})", "s.load_state_dict(s.state_dict())",
    "torch.amp.GradScaler('cpu', growth_factor=1.0)", "torch.amp.GradScaler('cpu', backoff_factor=1.5)",
    "s = torch.amp.GradScaler('cpu', enabled=False); s.scale(w.sum()).backward(); s.step(o); s.update()",
    "[(o.zero_grad(), s.scale((w * w).sum()).backward(), s.step(o), s.update()) for _ in range(5)]",
    "s.set_growth_factor(3.0); s.scale(w.sum()).backward(); s.step(o); s.update(); s.get_growth_factor()",
]


def life(lib, text, device="cpu"):
    """What a scaler, a weight and an optimizer have come to, or the error."""
    weight = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    names = {"torch": lib, "w": weight, "o": lib.optim.SGD([weight], lr=0.1),
             "s": lib.amp.GradScaler(device, init_scale=256.0, growth_interval=2)}
    try:
        exec(text, names)
    except Exception as error:
        return type(error), str(error)[:30]
    s = names["s"]
    grad = None if weight.grad is None else weight.grad.tolist()
    return weight.tolist(), grad, s.state_dict(), s.get_scale(), s.is_enabled()


@pytest.mark.parametrize("text", LIVES)
def test_scaler(text):
    assert life(fb, text) == life(torch, text)

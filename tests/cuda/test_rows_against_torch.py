"""On the GPU, beside PyTorch on the same GPU: every row of the tables in tests/ops, in float32, float16 and bfloat16.

A row's function is written with Flambeau as `torch`. Here the same code runs with PyTorch in that name too. A row that
PyTorch refuses is held against our own CPU in float32, and left out in half precision.
"""
import functools
import types
import warnings

import numpy as np
import pytest

from . import peer
from .peer import OURS, THEIRS, flambeau, home, on_devices, seed, there, torch

peer.prepare()

from flambeau.base.op import Op

from ..backends.test_toy import stays
from ..ops.rows import ROWS, results
from ..ops.test_tables import floating

DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
# The result is one of many right ones, or drawn.
FREE = {"linalg.svd", "svd", "linalg.eig", "linalg.eigh", "linalg.qr", "qr", "geqrf", "linalg.lu", "linalg.lu_factor",
        "linalg.ldl_factor", "empty_like", "empty"}
# PyTorch passes the gradient on to what was written over.
GRADIENT_OTHERWISE = {"as_strided_scatter"}
NOT_IN_HALF = {"matrix_exp", "instance_norm"}     # PyTorch's has few terms then; the other divides by what it rounded


# --- the same code over PyTorch ---------------------------------------------------------------------------------------

def theirs(x):
    """What goes by the name of `x` in PyTorch, for whatever of Flambeau's a row's function refers to."""
    if isinstance(x, types.ModuleType) and x.__name__.split(".")[0] == "flambeau":
        return by_path(x.__name__)
    if isinstance(x, functools.partial):
        return functools.partial(theirs(x.func), *map(theirs, x.args), **{k: theirs(v) for k, v in x.keywords.items()})
    if isinstance(x, types.FunctionType):
        if x.__module__.startswith("tests."):
            cells = None if x.__closure__ is None else tuple(types.CellType(theirs(c.cell_contents))
                                                             for c in x.__closure__)
            twin = types.FunctionType(x.__code__, Scope(x.__globals__), x.__name__, theirs(x.__defaults__), cells)
            twin.__kwdefaults__ = theirs(x.__kwdefaults__)
            return twin
    if isinstance(x, Op) or isinstance(x, types.FunctionType) and x.__module__.startswith("flambeau"):
        return public(x)
    if isinstance(x, flambeau.dtype):
        return getattr(torch, str(x).removeprefix("torch."))
    if isinstance(x, flambeau.Tensor):
        return torch.from_numpy(x.numpy())
    if isinstance(x, (tuple, list)):
        return type(x)(map(theirs, x))
    if isinstance(x, dict):
        return {key: theirs(part) for key, part in x.items()}
    return x


class Scope(dict):
    """The names that a function of the tables sees, each as PyTorch's once it is looked up."""

    def __init__(self, names):
        super().__init__()
        self.names = names
        self.update({name: theirs(x) if isinstance(x, (types.ModuleType, Op)) else x for name, x in names.items()})
        for name, x in names.items():
            if isinstance(x, types.FunctionType) and x.__module__.startswith("tests.ops"):
                self[name] = types.FunctionType(x.__code__, self, x.__name__, x.__defaults__, x.__closure__)


def by_path(path):
    found = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


def public(function):
    for place in (torch.nn.functional, torch.fft, torch.linalg, torch.special, torch):    # torch.fft is a module too
        if hasattr(place, function.__name__):
            return getattr(place, function.__name__)
    raise LookupError(f"PyTorch has no {function.__name__}")


# --- comparing --------------------------------------------------------------------------------------------------------

def placed(row, dtype, lib):
    """The inputs of a row on the library's device, in `dtype` where they are floating."""
    made = []
    for at, array in enumerate(row.inputs):
        t = lib.tensor(np.asarray(array))
        if t.is_floating_point():
            t = t.to(getattr(lib, dtype))
            if row.grad and at not in row.still:
                t.requires_grad_()
        made.append(t if stays_on_cpu(row, t) else there(t))
    return made


def stays_on_cpu(row, tensor):
    return "_pack" in row.name and str(tensor.dtype) == "torch.int64"


def gradients(lib, made, inputs):
    """The gradients of a combination of everything floating, for the inputs that want one."""
    outs = [f for f in results(made) if isinstance(f, lib.Tensor) and (f.is_floating_point() or f.is_complex())
            and f.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    if not outs or not leaves:
        return []
    total = 0
    for f in outs:
        weights = lib.from_numpy(np.linspace(0.5, 1.5, f.numel(), dtype=np.float32)).reshape(f.shape).to(f.device)
        total = total + ((f.abs() if f.is_complex() else f).float() * weights).sum()
    return list(lib.autograd.grad(total, leaves, allow_unused=True))


def ran(lib, function, row, dtype):
    """(results, gradients) of a row under a library, on its device."""
    inputs = placed(row, dtype, lib)
    seed(0)
    with on_devices(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = function(*inputs)
        return results(made), gradients(lib, made, inputs) if row.grad else []


def on_our_cpu(row):
    inputs = [t.detach().to(flambeau.float32).requires_grad_(t.requires_grad) if t.is_floating_point() else t
              for t in row.tensors(leaf=bool(row.grad))]
    with flambeau.config.using(executor="reference"):
        made = row.ours(*inputs)
        return results(made), gradients(flambeau, made, inputs) if row.grad else []


def refused_on_our_cpu(row, dtype, kind):
    try:
        results(row.ours(*row.tensors(dtype=getattr(flambeau, dtype))))
    except kind:
        return True
    return False


def numbers(t):
    t = home(t)
    name = str(t.dtype).removeprefix("torch.")
    return name, np.asarray((t.float() if name == "bfloat16" else t).numpy())


def compare(what, got, want, tolerance):
    assert len(got) == len(want), f"{len(got)} {what}, PyTorch has {len(want)}"
    for k, (a, b) in enumerate(zip(got, want)):
        if not peer.is_tensor(b):
            assert peer.is_tensor(a) or a == b or str(a).removeprefix("torch.") == str(b).removeprefix("torch.")
            continue
        (kind, x), (other, y) = numbers(a), numbers(b)
        assert kind == other and x.shape == y.shape, f"{what} {k}: {kind}{x.shape}, PyTorch's {other}{y.shape}"
        if x.dtype.kind in "fc":
            finite = np.abs(y[np.isfinite(y)])
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * max(0.1, finite.max(initial=0)),
                                       err_msg=f"{what} {k}")
        else:
            np.testing.assert_array_equal(x, y, err_msg=f"{what} {k}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [row for row in ROWS if row.op not in ("cpu", "cuda")], ids=lambda row: row.name)
def test_rows(row, dtype):
    if row.op in NOT_IN_HALF and dtype != "float32":
        pytest.skip("PyTorch's result is coarse")
    try:
        want, tolerance = ran(torch, theirs(row.ours), row, dtype), TOLERANCE[dtype]
    except Exception as error:                        # a form that only Flambeau has, or a dtype that PyTorch has not
        if dtype != "float32" or not floating(row.tensors()):
            pytest.skip(f"PyTorch: {type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}")
        want, tolerance = on_our_cpu(row), 1e-4
    try:
        got = ran(flambeau, row.ours, row, dtype)
    except Exception as error:
        if isinstance(error, NotImplementedError) and "complex32" in str(error):       # see docs/dtypes.md
            pytest.skip("complex32 has no tensors here")
        if dtype != "float32" and refused_on_our_cpu(row, dtype, type(error)):
            pytest.skip(f"not the GPU's: {str(error).splitlines()[0][:80]}")
        raise
    for made in got[0]:
        if peer.is_tensor(made) and not stays(row, made):
            assert made.device.type == OURS, f"a result is on {made.device}"
    if row.op in FREE or row.oracle is None:
        assert [tuple(t.shape) for t in got[0] if peer.is_tensor(t)] == [tuple(t.shape) for t in want[0]
                                                                          if peer.is_tensor(t)]
        return
    compare("result", got[0], want[0], tolerance)
    if row.op not in GRADIENT_OTHERWISE:
        compare("gradient", got[1], want[1], 4 * tolerance)


def test_most_rows_run_under_pytorch():
    """The comparison is with PyTorch and not with ourselves."""
    assert THEIRS in ("cuda", "cpu")
    run = 0
    for row in ROWS[::10]:
        try:
            ran(torch, theirs(row.ours), row, "float32")
            run += 1
        except Exception:
            pass
    assert run > 0.8 * len(ROWS[::10])

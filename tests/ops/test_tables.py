"""Every row of every table: values against NumPy, derivatives against differences, one meaning for every layout and device."""
import importlib

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.tensor import follow
from flambeau.tensor.forms import declared

from ..thorough import sample
from .rows import ROWS, results

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
TABLES = "arith reduce order shape arrange index matrix linalg nn recurrent loss fourier copies".split()
for _name in TABLES:
    importlib.import_module(f"{__package__}.{_name}")


def rows(which=lambda row: True, step=1):
    return pytest.mark.parametrize("row", sample([row for row in ROWS if which(row)], step), ids=lambda row: row.name)


def floating(made):
    return tuple(r for r in results(made) if isinstance(r, torch.Tensor) and (r.is_floating_point() or r.is_complex()))


def near(ours, theirs, tol):
    theirs = np.asarray(theirs)
    assert tuple(ours.shape) == theirs.shape
    if ours.is_floating_point() or ours.is_complex():
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tol, atol=tol * 10)
    else:
        np.testing.assert_array_equal(ours.numpy(), theirs)


@rows(lambda row: row.oracle is not None)
def test_values(row):
    ours, theirs = results(row.ours(*row.tensors())), results(row.oracle(*row.inputs))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        if isinstance(mine, torch.Tensor):
            near(mine, other, row.tol)
        else:
            assert mine == other


@rows(lambda row: row.holds is not None)
def test_what_holds(row):
    row.holds(row.ours(*row.tensors()), *row.inputs)


@rows(lambda row: row.grad, step=4)
def test_derivatives(row):
    assert gradcheck(lambda *a: floating(row.ours(*a)), row.tensors(leaf=True), atol=1e-4, check_grad_dtypes=True)


@rows(lambda row: row.grad is True, step=10)
def test_second_derivatives(row):
    assert gradgradcheck(lambda *a: floating(row.ours(*a)), row.tensors(leaf=True), atol=1e-4)


def told(row, seed):
    """All that can be told of what a row gives for numbers of that seed: dtypes, layouts, graphs, bits and gradients."""
    def nudged(t):
        rng = np.random.default_rng(seed)
        return t * (1 - 1e-3 * torch.tensor(rng.random(tuple(t.shape))).to(t.dtype)) if t.is_floating_point() else t

    def names(node):
        return None if node is None else (type(node).__name__, *[names(inner) for inner, _ in node.next_functions])

    torch.manual_seed(0)
    inputs = row.tensors(nudged, leaf=bool(row.grad))
    made = [r for r in results(row.ours(*inputs)) if isinstance(r, torch.Tensor)]
    outs = [r for r in made if r.requires_grad]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    found = torch.autograd.grad([r.abs().sum() for r in outs], leaves, allow_unused=True) if outs else ()
    kinds = [(r.dtype, r.shape, r.stride(), r.requires_grad, r._is_view(), names(r.grad_fn)) for r in made]
    return kinds, [None if t is None else t.detach().resolve_conj().numpy().tobytes() for t in (*made, *found)]


@rows(lambda row: not row.op.startswith("empty"), step=3)
def test_what_is_followed_is_what_is_called(row):
    """See Note [Followed functions] in flambeau/tensor/follow.py."""
    told(row, 0)
    told(row, 0)
    followed = told(row, 1)
    follow.forget_tapes()
    assert followed == told(row, 1)


def turned(t):
    """Laid out with the last dimension outermost."""
    return t.permute(-1, *range(t.dim() - 1)).contiguous().permute(*range(1, t.dim()), 0) if t.dim() > 1 else t


def stepped(t):
    """Every other element of something larger."""
    wide = torch.zeros([2 * n for n in t.shape], dtype=t.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in t.shape)]
    view.copy_(t)
    return view


@rows(lambda row: row.oracle is not None)
def test_layouts(row):
    for change in (turned, stepped):
        for mine, other in zip(results(row.ours(*row.tensors(change))), results(row.oracle(*row.inputs))):
            if isinstance(mine, torch.Tensor):
                near(mine, other, row.tol)


@rows()
def test_float32(row):
    """Narrower inputs give the same, as narrow."""
    wide, narrow = results(row.ours(*row.tensors())), results(row.ours(*row.tensors(dtype=torch.float32)))
    for w, n in zip(wide, narrow):
        if isinstance(w, torch.Tensor):
            assert n.shape == w.shape
            if w.dtype is torch.float64 and any(i.dtype == np.float64 for i in map(np.asarray, row.inputs)):
                assert n.dtype is torch.float32
                if row.oracle is not None:
                    np.testing.assert_allclose(n.detach().numpy(), w.detach().numpy(), rtol=2e-3, atol=2e-3)


@rows(lambda row: row.meta)
def test_meta_device(row):
    """Without data: the same shapes, dtypes and strides come out; in the first call, and in those that are known."""
    with_data = results(row.ours(*row.tensors()))
    for _ in range(3):
        without = results(row.ours(*row.tensors(device="meta")))
        for a, b in zip(with_data, without, strict=True):
            if isinstance(a, torch.Tensor):
                assert b.device.type == "meta" and (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


# --- nothing is left out ----------------------------------------------------------------------------------------------------

# Tested by hand elsewhere: a whole module of declarations, or an operation.
ELSEWHERE = {**dict.fromkeys(("create", "ranges"), "tests/tensor/test_create.py"), "cuda": "needs a device that is not here",
             "fractional": "tests/nn/test_layers_spatial.py", "linear_loss": "tests/nn/test_losses.py"}


def test_every_public_operation_has_a_row():
    covered = {row.op for row in ROWS}
    missing = []
    for name, op in declared.items():
        public = [n.rpartition(".")[2] for n in ([] if name.startswith("_") else [name.removesuffix("_")]) + op.names.split()]
        module = op.__module__.rpartition(".")[2]
        if public and not op.pointwise and not covered.intersection(public) and not {module, *public}.intersection(ELSEWHERE):
            missing.append(f"{module}.{public[0]}")
    assert not missing, f"no row in tests/ops (see tests/ops/rows.py) for {' '.join(missing)}"

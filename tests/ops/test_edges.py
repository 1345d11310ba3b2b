"""Edges: nothing at all, a single number, NaN and infinity."""
import math

import numpy as np
import pytest

import flambeau as torch

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning", "ignore:.*deprecated:UserWarning")
F, L = torch.nn.functional, torch.linalg
inf, nan = math.inf, math.nan


def same(ours, theirs):
    theirs = np.asarray(theirs)
    assert tuple(ours.shape) == theirs.shape
    np.testing.assert_array_equal(ours.detach().numpy(), theirs)


# --- nothing --------------------------------------------------------------------------------------------------------------


EMPTY, NO_ROWS, NO_COLUMNS = np.zeros(0), np.zeros((0, 3)), np.zeros((3, 0))


@pytest.mark.parametrize("name", "sum prod mean var std all any".split())
def test_reductions_of_nothing(name):
    with np.errstate(all="ignore"):
        for array in (EMPTY, NO_ROWS, NO_COLUMNS):
            ddof = {"ddof": 1} if name in ("var", "std") else {}
            with pytest.warns() if name in ("mean", "var", "std") else _quiet():
                whole, along = getattr(array, name)(**ddof), [getattr(array, name)(d, **ddof) for d in range(array.ndim)]
            same(getattr(torch.tensor(array), name)(), whole)
            for d, expected in enumerate(along):
                same(getattr(torch.tensor(array), name)(d), expected)


class _quiet:
    def __enter__(self):
        pass

    def __exit__(self, *exc):
        pass


@pytest.mark.parametrize("name", "max min argmax argmin amax amin median mode kthvalue".split())
def test_picking_from_nothing_is_refused(name):
    x = torch.tensor(NO_COLUMNS)
    args = (1, 1) if name == "kthvalue" else (1,)
    with pytest.raises((IndexError, RuntimeError)):
        getattr(x, name)(*args)
    if name not in ("kthvalue", "mode"):
        picked = getattr(torch.tensor(NO_ROWS), name)(1)                 # nothing to pick for, which is fine
        assert (picked.values if isinstance(picked, tuple) else picked).shape == (0,)


def test_matrices_of_nothing():
    same(torch.zeros(2, 0) @ torch.zeros(0, 3), np.zeros((2, 3)))
    same(torch.zeros(0, 2, 3) @ torch.zeros(0, 3, 4), np.zeros((0, 2, 4)))
    same(torch.zeros(2, 0) @ torch.zeros(0), np.zeros(2))
    same(torch.zeros(0) @ torch.zeros(0), 0.0)
    same(F.linear(torch.zeros(0, 3), torch.zeros(4, 3), torch.ones(4)), np.zeros((0, 4)))
    same(torch.addmm(torch.ones(2, 3), torch.zeros(2, 0), torch.zeros(0, 3)), np.ones((2, 3)))
    same(torch.einsum("ij,jk->ik", torch.zeros(2, 0), torch.zeros(0, 3)), np.zeros((2, 3)))
    same(L.det(torch.zeros(0, 0)), 1.0)
    same(L.inv(torch.zeros(0, 0)), np.zeros((0, 0)))
    same(L.solve(torch.eye(2), torch.zeros(2, 0)), np.zeros((2, 0)))
    assert L.svd(torch.zeros(0, 3)).S.shape == (0,) and L.eigh(torch.zeros(0, 2, 2)).eigenvectors.shape == (0, 2, 2)


def test_moving_nothing():
    x = torch.tensor(NO_COLUMNS)
    same(x.t(), NO_COLUMNS.T)
    same(x.reshape(0, 7), np.zeros((0, 7)))
    same(torch.cat([torch.ones(2, 3), torch.zeros(0, 3)]), np.ones((2, 3)))
    same(torch.cat([torch.zeros(0), torch.ones(2, 3)]), np.ones((2, 3)))             # the old empty tensor is ignored
    same(torch.stack([x, x]), np.zeros((2, 3, 0)))
    same(x.expand(2, 3, 0), np.zeros((2, 3, 0)))
    same(x.repeat(2, 2), np.zeros((6, 0)))
    same(x.flip(0, 1), NO_COLUMNS)
    same(x.sort(1).values, NO_COLUMNS)
    same(x.cumsum(1), NO_COLUMNS)
    same(x.softmax(1), NO_COLUMNS)
    assert x.unique().shape == (0,) and x.topk(0, 1).indices.shape == (3, 0) and len(x.split(1, 0)) == 3
    with pytest.raises(RuntimeError, match="ambiguous"):
        x.reshape(-1, 0)


def test_picking_nothing():
    x, none = torch.arange(6.0).view(2, 3), torch.zeros(0, dtype=torch.int64)
    same(x[none], np.zeros((0, 3)))
    same(x[:, none], np.zeros((2, 0)))
    same(x[1:1], np.zeros((0, 3)))
    same(x[x > 99], np.zeros(0))
    same(x.index_select(1, none), np.zeros((2, 0)))
    same(x.gather(1, none.view(2, 0)), np.zeros((2, 0)))
    same(x.index_add(0, none, torch.zeros(0, 3)), x.numpy())
    same(x.scatter_add(1, none.view(2, 0), torch.zeros(2, 0)), x.numpy())
    same(F.embedding(none, torch.ones(4, 2)), np.zeros((0, 2)))
    x[none] = 5.0
    x[x > 99] = 7.0
    same(x, np.arange(6.0).reshape(2, 3))
    assert torch.zeros(0).nonzero().shape == (0, 1) and torch.tensor(1).nonzero().shape == (1, 0)


def test_layers_of_nothing():
    same(F.conv2d(torch.zeros(0, 2, 4, 4), torch.zeros(3, 2, 3, 3)), np.zeros((0, 3, 2, 2)))
    same(F.max_pool2d(torch.zeros(0, 2, 4, 4), 2), np.zeros((0, 2, 2, 2)))
    same(F.layer_norm(torch.zeros(0, 4), (4,)), np.zeros((0, 4)))
    assert F.mse_loss(torch.zeros(0), torch.zeros(0)).isnan() and F.mse_loss(torch.zeros(0), torch.zeros(0), reduction="sum") == 0
    assert F.cross_entropy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).isnan()


def test_gradients_of_nothing():
    for use in (lambda x: x.sum(), lambda x: (x * x).sum(), lambda x: (x @ x.t()).sum(), lambda x: x.softmax(1).sum(),
                lambda x: x.sort(1).values.sum(), lambda x: torch.cat([x, x]).sum(), lambda x: x.prod(), lambda x: x.var()):
        x = torch.zeros(3, 0, requires_grad=True)
        use(x).backward()
        assert x.grad.shape == (3, 0)
    w = torch.zeros(2, 0, requires_grad=True)
    (w @ torch.zeros(0, 3) + 1).sum().backward()
    assert w.grad.shape == (2, 0)


# --- a single number ------------------------------------------------------------------------------------------------------


def test_a_zero_dimensional_tensor_has_dimension_0_by_courtesy():
    x = torch.tensor(3.0)
    for made in (x.sum(0), x.mean(-1), x.prod(0), x.max(0).values, x.sort(0).values, x.cumsum(0), x.logsumexp(0), x.flip(0), x.topk(1).values,
                 x.median(0).values, x.unfold(0, 1, 1)[0], x.index_select(0, torch.tensor([0])).view(()), x.squeeze(0), x.transpose(0, -1), x.t()):
        assert made.shape == () and made.item() == 3
    assert x.softmax(0).item() == 1 and x.argmax(0).item() == 0 and x.sort(0).indices.item() == 0
    assert x.view(1, 1).shape == (1, 1) and x.unsqueeze(-1).shape == (1,) and x.reshape(-1).shape == (1,) and x.expand(2).tolist() == [3, 3]
    with pytest.raises(IndexError):
        x.sum(1)
    with pytest.raises(IndexError):
        x[0]
    assert x[...].item() == x[()].item() == 3 and x[None].shape == (1,)


def test_a_zero_dimensional_tensor_takes_writes_and_gradients():
    x = torch.tensor(3.0, requires_grad=True)
    y = x * 1
    y[...] = y * 2
    y[()] += 1
    (y.sum(0) * y.max(0).values).backward()                              # (2x + 1)²
    assert y.item() == 7 and x.grad.item() == 28


def test_statistics_of_a_single_number():
    x = torch.tensor([3.0])
    assert x.var().isnan() and x.std().isnan() and x.var(correction=0) == 0 and x.median() == 3 and x.cov() is not None


# --- nan and infinity ---------------------------------------------------------------------------------------------------------


def test_nan_spreads_through_what_compares():
    x = torch.tensor([1.0, nan, 3.0])
    for made in (x.max(), x.min(), x.amax(), x.sum(), x.mean(), x.median(), x.max(0).values, x.cummax(0).values[-1], torch.maximum(x, x.flip(0))[1]):
        assert made.isnan()
    assert x.argmax() == 1 and x.max(0).indices == 1 and x.argmin() == 1
    assert x.nansum() == 4 and x.nanmean() == 2 and x.nanmedian() == 1
    assert torch.fmax(x, torch.zeros(3)).tolist() == [1, 0, 3]
    assert x.sort().indices.tolist() == [0, 2, 1] and x.sort(descending=True).indices.tolist() == [1, 2, 0]
    assert not torch.equal(x, x) and torch.allclose(x, x, equal_nan=True) and (x == x).tolist() == [True, False, True]
    assert torch.nan_to_num(torch.tensor([nan, inf, -inf])).tolist() == [0, np.finfo(np.float32).max, np.finfo(np.float32).min]
    assert torch.clamp(x, 0, 2).isnan().tolist() == [False, True, False] and x.relu().isnan()[1] and x.sign().tolist()[::2] == [1, 1]


def test_infinity_keeps_its_meaning():
    x = torch.tensor([-inf, -inf])
    assert x.logsumexp(0) == -inf and x.softmax(0).isnan().all()
    y = torch.tensor([inf, 1.0])
    assert y.logsumexp(0) == inf and y.sum() == inf and (y - y)[0].isnan() and y.exp()[0] == inf and (-y).exp()[0] == 0
    assert torch.tensor([0.0]).log() == -inf and torch.tensor([1.0]) / 0 == inf and torch.tensor([1.0, -inf]).sigmoid()[1] == 0
    assert torch.tensor([1000.0, 0.0]).softmax(0).tolist() == [1, 0] and torch.tensor([1000.0, 0.0]).logsumexp(0) == 1000
    assert torch.tensor([1000.0, -1000.0]).log_softmax(0).tolist() == [0, -2000]
    assert F.softplus(torch.tensor([1000.0, -1000.0])).tolist() == [1000, 0]
    assert F.binary_cross_entropy_with_logits(torch.tensor([1000.0, -1000.0]), torch.tensor([1.0, 0.0])) == 0
    assert torch.logaddexp(torch.tensor([1000.0]), torch.tensor([1000.0])).item() == pytest.approx(1000 + math.log(2))


@pytest.mark.parametrize("fn, at, slope", [
    (torch.relu, 0.0, 0.0), (torch.abs, 0.0, 0.0), (torch.sqrt, 0.0, inf), (lambda x: x ** 2, 0.0, 0.0), (lambda x: x ** 0, 0.0, 0.0),
    (lambda x: x.clamp(0, 1), 0.0, 1.0), (lambda x: x.clamp(0, 1), 1.0, 1.0), (torch.sigmoid, -1000.0, 0.0), (torch.tanh, 1000.0, 0.0),
    (F.softplus, 1000.0, 1.0), (F.logsigmoid, -1000.0, 1.0), (torch.log1p, 0.0, 1.0), (torch.sinc, 0.0, 0.0), (lambda x: x.norm(), 0.0, 0.0),
    (F.gelu, 100.0, 1.0), (lambda x: torch.where(x > 0, x.log(), x * 0), 1.0, 1.0), (F.hardswish, 5.0, 1.0)])
def test_gradients_at_special_points(fn, at, slope):
    """Where the derivative has two sides, or the formula overflows: the value that PyTorch's documentation or limits give."""
    x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    fn(x).sum().backward()
    assert x.grad.item() == slope


def test_ties_share_or_pick():
    """amax shares a gradient among ties, max(dim) gives it to the one it names, maximum halves it."""
    x = torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    assert torch.autograd.grad(x.amax(), x)[0].tolist() == [0.5, 0.5, 0]
    assert torch.autograd.grad(x.max(0).values, x)[0].sum() == 1 and torch.autograd.grad(x.max(), x)[0].tolist() == [0.5, 0.5, 0]
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    assert [g.item() for g in torch.autograd.grad(torch.maximum(a, b), (a, b))] == [0.5, 0.5]


# --- between two pixels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 10, 16, 28])
def test_a_sample_at_a_pixel_takes_the_slope_where_single_precision_puts_it(size):
    x = (np.arange(size, dtype=np.float32) * 2 + 1) / np.float32(size) - np.float32(1)        # the centres of pixels
    at = ((x + np.float32(1)) * np.float32(size) - np.float32(1)) / np.float32(2)
    image = np.arange(size, dtype=np.float64) ** 2
    before = np.clip(np.floor(at).astype(int), 0, size - 2)
    slope = np.where((at > 0) & (at < size - 1), (image[before + 1] - image[before]) * size / 2, 0)
    places = torch.zeros(1, 1, size, 2)
    places[..., 0] = torch.from_numpy(x)
    places.requires_grad_()
    F.grid_sample(torch.from_numpy(image).float().view(1, 1, 1, -1), places, padding_mode="border",
                  align_corners=False).sum().backward()
    np.testing.assert_allclose(places.grad[0, 0, :, 0].numpy(), slope, rtol=1e-5)

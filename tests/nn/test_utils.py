"""`nn.utils`: clipping, packing, reparametrised weights, pruning, fusing and stateless calls, by what they promise."""
import copy
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import utils
from flambeau.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from flambeau.trace.recording.record import current


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def close(ours, theirs, tol=1e-5):
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tol, atol=tol)


def params():
    made = [torch.zeros(shape, requires_grad=True) for shape in ((3, 2), (4,), (2,))]
    for p in made[:2]:
        p.grad = torch.randn(p.shape)
    return made


# --- clipping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3, math.inf])
def test_clip_norm(order):
    given = params()
    before = np.concatenate([p.grad.numpy().ravel().copy() for p in given[:2]])
    length = np.linalg.norm(before, order)
    total = utils.clip_grad_norm_(given, 0.5, norm_type=order)
    after = np.concatenate([p.grad.numpy().ravel() for p in given[:2]])
    close(total, length)
    close(torch.tensor(after), before * 0.5 / length, 1e-4)
    again = [p.grad.clone() for p in given[:2]]
    utils.clip_grad_norm_(given, 100.0)                    # long enough: nothing changes
    assert all(torch.equal(p.grad, g) for p, g in zip(given, again)) and given[2].grad is None


def test_clipping_does_not_look():
    given = params()
    torch.cpu.synchronize()
    total = utils.clip_grad_norm_(given, 0.5)
    utils.clip_grad_value_(given, 0.1)
    assert total._storage.value.trace is not None and len(current().code) > 4


def test_clip_value():
    given = params()
    before = [p.grad.numpy().copy() for p in given[:2]]
    utils.clip_grad_value_(given, 0.3)
    for p, grad in zip(given, before):
        close(p.grad, np.clip(grad, -0.3, 0.3))


def test_norms_that_are_not_finite():
    given = params()
    given[0].grad[0] = math.nan
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(given, 1.0, error_if_nonfinite=True)
    assert utils.clip_grad_norm_(given, 1.0).isnan()
    with pytest.warns(UserWarning, match="empty generator"):
        utils.clip_grad_norm_((p for p in ()), 1.0)


def test_vectors():
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (11,) and vector.requires_grad
    before = {name: t.clone() for name, t in net.state_dict().items()}
    utils.vector_to_parameters(2 * vector.detach(), net.parameters())
    for name, t in net.state_dict().items():
        close(t, 2 * before[name])


# --- sequences --------------------------------------------------------------------------------------------------------


def test_packing_and_back():
    samples = [torch.randn(n, 2) for n in (2, 4, 1)]
    packed = rnn.pack_sequence(samples, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2] and packed.unsorted_indices.tolist() == [1, 0, 2]
    close(packed.data, torch.stack([samples[1][0], samples[0][0], samples[2][0], samples[1][1], samples[0][1],
                                    samples[1][2], samples[1][3]]))
    for one, other in zip(rnn.unpack_sequence(packed), samples):
        assert torch.equal(one, other)
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=9.0, total_length=5)
    assert lengths.tolist() == [2, 4, 1] and padded.shape == (3, 5, 2) and (padded[2, 1:] == 9).all()
    assert torch.equal(padded[1, :4], samples[1])


def test_padding_sides():
    parts = [torch.tensor([1, 2, 3]), torch.tensor([4])]
    assert rnn.pad_sequence(parts, True).tolist() == [[1, 2, 3], [4, 0, 0]]
    assert rnn.pad_sequence(parts, True, 7, "left").tolist() == [[1, 2, 3], [7, 7, 4]]
    assert rnn.pad_sequence(parts).tolist() == [[1, 4], [2, 0], [3, 0]]


def test_gradients_of_packing():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    run = lambda x: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [4, 2, 1]), padding_value=2.0)[0] ** 2
    assert torch.autograd.gradcheck(run, (x,)) and torch.autograd.gradgradcheck(run, (x,))
    parts = [torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (1, 3)]
    assert torch.autograd.gradcheck(lambda *p: rnn.pad_sequence(p, padding_side="left") ** 2, parts)


def test_packing_looks_at_lengths_only():
    x, lengths = torch.randn(50, 3, 4), torch.tensor([50, 20, 7])
    torch.cpu.synchronize()
    packed = rnn.pack_padded_sequence(x * 2, lengths)
    assert packed.data._storage.value.trace is not None
    padded, _ = rnn.pad_packed_sequence(packed)
    assert padded._storage.value.trace is not None and len(current().code) < 8


# --- parametrizations -------------------------------------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x):
        return x.triu()


class Twice(nn.Module):
    calls = 0

    def forward(self, x):
        Twice.calls += 1
        return 2 * x


def test_parametrize():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert torch.equal(layer.weight, layer.weight.mT)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    layer(torch.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    layer.weight = torch.arange(9.0).reshape(3, 3)
    assert layer.weight.tolist() == [[0, 1, 2], [1, 4, 5], [2, 5, 8]]
    parametrize.register_parametrization(layer, "weight", Twice())
    assert layer.weight[2, 2] == 16
    with pytest.raises(RuntimeError, match="Twice does not implement right_inverse"):
        layer.weight = torch.ones(3, 3)


def test_an_optimizer_keeps_its_parameter():
    """Registering and removing change what a parameter holds, not which object it is."""
    layer = nn.Linear(3, 3)
    weight = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert layer.parametrizations.weight.original is weight and not weight.tril(-1).any()
    value = layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is weight and torch.equal(weight, value) and type(layer) is nn.Linear
    assert not parametrize.is_parametrized(layer)


def test_copies_are_apart():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    twin = copy.deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert parametrize.is_parametrized(twin, "weight") and torch.equal(twin.weight, layer.weight)
    assert twin.parametrizations.weight.original is not layer.weight


def test_cached():
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Twice())
    Twice.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight and Twice.calls == 1
        with parametrize.cached():
            assert layer.weight is not None and Twice.calls == 1
    assert layer.weight is not layer.weight and Twice.calls == 3


def test_loading():
    make = lambda: parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    one, other = make(), make()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.weight, other.weight)


def test_a_parametrized_recurrent_layer():
    net = parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    out, _ = net(torch.randn(5, 2, 3))
    out.sum().backward()
    held = net.parametrizations.weight_hh_l0
    assert held.original0.grad is not None and held.original1.grad is not None
    assert all(w.shape == (16, 4) or w.dim() == 1 or w.shape == (16, 3) for w in net._flat_weights)


@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal(how, shape, trivial):
    layer = parametrizations.orthogonal(nn.Linear(*shape), orthogonal_map=how, use_trivialization=trivial)
    layer(torch.ones(1, shape[0])).sum().backward()
    with torch.no_grad():
        layer.parametrizations.weight.original.add_(layer.parametrizations.weight.original.grad, alpha=0.5)
    w = layer.weight
    small = min(shape)
    close(w @ w.mT if w.shape[0] == small else w.mT @ w, np.eye(small), 1e-4)
    if trivial or how == "householder":
        wanted = nn.init.orthogonal_(torch.empty(w.shape))
        layer.weight = wanted
        close(layer.weight, wanted, 1e-4)
    else:
        with pytest.raises(NotImplementedError, match="use_trivialization=False"):
            layer.weight = w


def test_spectral_norm():
    for made in (parametrizations.spectral_norm, utils.spectral_norm):
        layer = made(nn.Linear(6, 4), n_power_iterations=30)
        layer(torch.ones(1, 6))
        close(torch.linalg.svdvals(layer.weight)[0], 1.0, 1e-3)
        state = {name: t.clone() for name, t in layer.state_dict().items()}
        layer.eval()(torch.ones(1, 6))
        assert all(torch.equal(t, state[name]) for name, t in layer.state_dict().items())


def test_weight_norm():
    with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
        old = utils.weight_norm(nn.Linear(3, 4))
    new = parametrizations.weight_norm(nn.Linear(3, 4))
    new.load_state_dict(old.state_dict())                  # the old names are understood
    x = torch.randn(2, 3)
    close(new(x), old(x))
    with torch.no_grad():
        new.parametrizations.weight.original0.fill_(2.0)
    close(new.weight.norm(dim=1), np.full(4, 2.0))
    value = old.weight.detach().clone()
    utils.remove_weight_norm(old)
    assert isinstance(old.weight, nn.Parameter) and sorted(old.state_dict()) == ["bias", "weight"]
    close(old.weight, value)


# --- pruning, fusing, calling -----------------------------------------------------------------------------------------


def test_prune():
    layer = nn.Linear(4, 6)
    sizes = layer.weight.detach().abs().flatten().sort().values
    prune.l1_unstructured(layer, "weight", 0.5)
    kept = layer.weight.detach().abs()
    assert (kept == 0).sum() == 12 and kept[kept > 0].min() == sizes[12]
    layer(torch.ones(1, 4)).sum().backward()
    assert torch.equal(layer.weight_orig.grad, layer.weight_mask)
    prune.ln_structured(layer, "weight", 2, 2, 0)          # two rows of what is left
    assert (layer.weight.abs().sum(1) == 0).sum() >= 2 and (layer.weight == 0).sum() > 12
    value = layer.weight.detach().clone()
    prune.remove(layer, "weight")
    assert torch.equal(layer.weight, value) and isinstance(layer.weight, nn.Parameter) and not prune.is_pruned(layer)


def test_own_pruning_method():
    class EveryOther(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask
    layer = nn.Linear(2, 2)
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 1], [0, 1]]
    EveryOther.apply(layer, "weight")                      # of the two that are left
    assert layer.weight_mask.tolist() == [[0, 0], [0, 1]]


def test_pruning_everything():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    prune.global_unstructured([(net[0], "weight"), (net[1], "weight")], prune.L1Unstructured, amount=7)
    assert sum(int((layer.weight == 0).sum()) for layer in net) == 7


@pytest.mark.parametrize("layer, norm, x", [
    (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), (1, 2, 4, 4)), (nn.Linear(2, 3, bias=False), nn.BatchNorm1d(3), (4, 2)),
    (nn.ConvTranspose1d(2, 3, 2), nn.BatchNorm1d(3, affine=False), (1, 2, 4))], ids=["conv", "linear", "transposed"])
def test_fusing(layer, norm, x):
    norm(torch.randn(8, 3, *x[2:]) * 3 + 1)                # statistics that are not the first ones
    layer.eval(), norm.eval()
    if isinstance(layer, nn.Linear):
        fused = utils.fuse_linear_bn_eval(layer, norm)
    else:
        fused = utils.fuse_conv_bn_eval(layer, norm, transpose=isinstance(layer, nn.ConvTranspose1d))
    x = torch.randn(x)
    close(fused(x), norm(layer(x)))


def test_functional_call():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    x, weight = torch.randn(4, 2), torch.ones(2, 2, requires_grad=True)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    given = {"0.weight": weight, "1.running_mean": torch.zeros(2)}
    out = stateless._functional_call(net, given, (x,))
    out.sum().backward()
    assert weight.grad is not None and net[0].weight.grad is None and given["1.running_mean"].any()
    own = {name: t for name, t in net.state_dict().items() if name not in ("1.running_var", "1.num_batches_tracked")}
    assert all(torch.equal(t, before[name]) for name, t in own.items())
    with pytest.raises(ValueError, match="inner"):
        stateless._functional_call(nn.Sequential(Raises()), {"0.weight": weight}, (x,))


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        raise ValueError(f"inner {float(self.weight.detach().sum())}")


def test_a_call_that_fails_leaves_the_module_as_it_was():
    net = Raises()
    own = net.weight
    with pytest.raises(ValueError, match="inner 2"):
        stateless._functional_call(net, {"weight": torch.ones(2)}, (torch.ones(1),))
    assert net.weight is own


def test_skip_init():
    state = torch.get_rng_state()
    layer = utils.skip_init(nn.Linear, 3, 2)
    assert layer.weight.shape == (2, 3) and not layer.weight.is_meta and torch.equal(state, torch.get_rng_state())


def test_memory_format():
    net = utils.convert_conv2d_weight_memory_format(nn.Sequential(nn.Conv2d(3, 4, 2)), torch.channels_last)
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("call, kind, words", [
    (lambda: rnn.pack_padded_sequence(torch.zeros(3, 2), [4, 1]), RuntimeError, "at most 3"),
    (lambda: rnn.pack_padded_sequence(torch.zeros(3, 2), [1, 2]), RuntimeError, "sorted in decreasing order"),
    (lambda: rnn.pad_sequence([torch.zeros(2, 3), torch.zeros(2)]), RuntimeError, "sequence 1"),
    (lambda: parametrize.register_parametrization(nn.Linear(2, 2), "scale", Twice()), ValueError, "name 'scale'"),
    (lambda: parametrize.remove_parametrizations(nn.Linear(2, 2), "weight"), ValueError, "parametrization on weight"),
    (lambda: parametrizations.orthogonal(nn.Linear(2, 2), "bias"), ValueError, "1 dimensions"),
    (lambda: prune.remove(nn.Linear(2, 2), "weight"), ValueError, "has to be pruned"),
    (lambda: utils.vector_to_parameters([1.0], []), TypeError, "expected torch.Tensor"),
    (lambda: utils.fuse_conv_bn_eval(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1)), AssertionError, "only for eval"),
    (lambda: utils.skip_init(nn.ReLU), RuntimeError, "device"),
    (lambda: stateless._functional_call(nn.Linear(1, 1), {}, torch.ones(1), strict=True), RuntimeError, "Missing key"),
])
def test_refusals(call, kind, words):
    with pytest.raises(kind, match=words):
        call()

"""`nn.utils` beside PyTorch's: clipping, packing, parametrizations, norms, pruning, fusing, stateless calls."""
import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.utils.prune")                # neither library imports it itself

import flambeau.nn.utils.prune

from .pairs import agree, both_refuse, both_warn, total, trained

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
INF = float("inf")

# --- sequences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths, ordered", [([5, 3, 3, 1], True), ([2, 5, 1, 2], False), ([4, 4, 4, 4], True)])
def test_packing(batch_first, lengths, ordered):
    def program(lib):
        rnn = lib.nn.utils.rnn
        x = lib.randn((4, 5, 2) if batch_first else (5, 4, 2), requires_grad=True)
        packed = rnn.pack_padded_sequence(x, lengths, batch_first, ordered)
        padded, counts = rnn.pad_packed_sequence(packed, batch_first, -1.5, 7)
        again = rnn.pack_padded_sequence(x, lib.tensor(lengths), batch_first, False)
        return [list(packed), padded, counts, rnn.unpack_sequence(packed), list(again.to(lib.float64)),
                lib.autograd.grad(total(packed.data, padded), x)]
    agree(program)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_padding(side, batch_first):
    def program(lib):
        rnn = lib.nn.utils.rnn
        parts = [lib.randn(n, 3, requires_grad=True) for n in (2, 4, 1)]
        padded = rnn.pad_sequence(parts, batch_first, 0.25, side)
        numbers = rnn.pad_sequence([lib.tensor([1, 2]), lib.tensor([3.5])], padding_value=7)
        mixed = rnn.pad_sequence(lib.arange(6).reshape(2, 3))
        packed = rnn.pack_sequence(parts, enforce_sorted=False)
        cut = rnn.unpad_sequence(padded.clone(), lib.tensor([2, 4, 1]), batch_first)    # PyTorch turns it in place
        return [padded, numbers, mixed, list(packed), cut, lib.autograd.grad(total(padded, packed.data), parts),
                rnn.pad_sequence([lib.zeros(0), lib.zeros(0)])]
    agree(program)


def test_packed_sequence_object():
    def program(lib):
        rnn = lib.nn.utils.rnn
        packed = rnn.pack_sequence([lib.randn(2), lib.randn(3)], enforce_sorted=False)
        moved = [getattr(packed, to)() for to in ("double", "half", "long", "int", "short", "char", "byte")]
        bare = rnn.PackedSequence((lib.ones(3), lib.tensor([2, 1])))
        return [repr(packed), packed._fields, [list(m) for m in moved], packed.float() is packed,
                packed.cpu() is packed, packed.to("cpu") is packed, packed.is_cuda, packed.is_pinned(),
                isinstance(packed, tuple), list(bare),
                rnn.invert_permutation(lib.tensor([2, 0, 1])), rnn.invert_permutation(None)]
    agree(program)


# --- gradients as a whole ---------------------------------------------------------------------------------------------


def with_grads(lib, scale=3.0):
    made = [lib.zeros(shape, requires_grad=True) for shape in ((3, 2), (4,), (), (2,))]
    for p in made[:3]:
        p.grad = scale * lib.randn(p.shape)
    return made


@pytest.mark.parametrize("norm_type", [2.0, 1, 3.5, INF, -INF, 0.0, 0.5])
@pytest.mark.parametrize("bound", [1.0, 1000, 0.0])
def test_clip_norm(norm_type, bound):
    def program(lib):
        params = with_grads(lib)
        total = lib.nn.utils.clip_grad_norm_(params, bound, norm_type, foreach=False)
        same = lib.nn.utils.get_total_norm([p.grad for p in params[:3]], norm_type)
        lib.nn.utils.clip_grads_with_norm_(params, 0.5, same)
        return [total, same, [p.grad for p in params[:3]], params[3].grad]
    agree(program)


def test_clip_edges():
    def program(lib):
        utils, params = lib.nn.utils, with_grads(lib)
        one = utils.clip_grad_norm_(params[0], 0.1)
        by_name = utils.clip_grad_norm_((p for p in params), 0.1)
        utils.clip_grad_value_(params, 0.05)
        values = [p.grad.clone() for p in params[:3]]
        utils.clip_grad_value_(params[1], 0.01)
        params[0].grad[0] = INF
        broken = utils.clip_grad_norm_(params, 1.0)
        return [one, by_name, values, params[1].grad, broken, params[0].grad, utils.clip_grad_norm_([], 1.0),
                utils.get_total_norm([])]
    agree(program)


def test_vectors():
    def program(lib):
        net = lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.Linear(2, 1))
        vector = lib.nn.utils.parameters_to_vector(net.parameters())
        lib.nn.utils.vector_to_parameters(vector * 2, net.parameters())
        return [vector, dict(net.state_dict()), net(lib.ones(1, 3))]
    agree(program)


# --- parametrizations -------------------------------------------------------------------------------------------------


def kinds(lib):
    """Parametrizations of several sorts, by name."""
    class Symmetric(lib.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

        def right_inverse(self, x):
            return x.triu()

    class Exp(lib.nn.Module):
        def forward(self, x):
            return x.exp()

        def right_inverse(self, x):
            return x.abs().log()

    class LowRank(lib.nn.Module):
        def forward(self, a, b):
            return a @ b

        def right_inverse(self, x):
            return x[:, :2].clone(), x[:2].clone()

    class Plain(lib.nn.Module):
        def forward(self, x):
            return x * 2

    class Wider(lib.nn.Module):
        def forward(self, x):
            return x.double()

    class Number(lib.nn.Module):
        def forward(self, x):
            return 3.0

        def right_inverse(self, x):
            return 3.0

    class Typed(lib.nn.Module):
        def forward(self, x):
            return x

        def right_inverse(self, x):
            return x.double()

    return {c.__name__: c for c in (Symmetric, Exp, LowRank, Plain, Wider, Number, Typed)}


@pytest.mark.parametrize("names", [("Symmetric",), ("Exp", "Symmetric"), ("LowRank",), ("LowRank", "Plain"),
                                   ("Plain",)])
@pytest.mark.parametrize("leave", [True, False])
def test_parametrize(names, leave):
    def program(lib):
        parametrize, layer = lib.nn.utils.parametrize, lib.nn.Linear(3, 3)
        for name in names:
            parametrize.register_parametrization(layer, "weight", kinds(lib)[name]())
        x = lib.randn(2, 3)
        out = layer(x)
        seen = [repr(layer), type(layer).__name__, dict(layer.state_dict()), layer.weight, out,
                trained(lib, layer, total(out)), parametrize.is_parametrized(layer),
                parametrize.is_parametrized(layer, "bias"), parametrize.type_before_parametrizations(layer).__name__]
        if "Plain" not in names:
            layer.weight = lib.rand(3, 3)
            seen += [layer.weight, dict(layer.state_dict())]
        seen.append(copy.deepcopy(layer)(x))
        with parametrize.cached():
            seen.append(layer.weight is layer.weight)
        before = [id(p) for p in layer.parameters()]
        if leave or "LowRank" not in names:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
            seen += [repr(layer), layer.weight, type(layer).__name__, isinstance(layer.weight, lib.nn.Parameter),
                     [id(p) in before for p in layer.parameters()]]
        return seen
    agree(program)


def test_parametrize_transfer():
    def program(lib):
        parametrize, layer, other = lib.nn.utils.parametrize, lib.nn.Linear(3, 3), lib.nn.Linear(3, 3)
        parametrize.register_parametrization(layer, "weight", kinds(lib)["Symmetric"]())
        parametrize.transfer_parametrizations_and_params(layer, other)
        low, target = lib.nn.Linear(3, 3), lib.nn.Linear(3, 3)
        parametrize.register_parametrization(low, "weight", kinds(lib)["LowRank"]())
        parametrize.transfer_parametrizations_and_params(low, target, "weight")
        return [other.weight, dict(other.state_dict()), target.weight, dict(target.state_dict()),
                other.parametrizations.weight.original is layer.parametrizations.weight.original]
    agree(program)


PARAMETRIZED = {
    "orthogonal": lambda lib, p: p.orthogonal(lib.nn.Linear(4, 4)),
    "orthogonal tall": lambda lib, p: p.orthogonal(lib.nn.Linear(3, 5)),
    "orthogonal wide": lambda lib, p: p.orthogonal(lib.nn.Linear(5, 3), orthogonal_map="cayley"),
    "orthogonal exponential": lambda lib, p: p.orthogonal(lib.nn.Linear(3, 5), orthogonal_map="matrix_exp"),
    "orthogonal direct": lambda lib, p: p.orthogonal(lib.nn.Linear(3, 5), orthogonal_map="householder",
                                                     use_trivialization=False),
    "spectral": lambda lib, p: p.spectral_norm(lib.nn.Linear(3, 5), n_power_iterations=3),
    "spectral conv": lambda lib, p: p.spectral_norm(lib.nn.ConvTranspose1d(3, 5, 2)),
    "spectral bias": lambda lib, p: p.spectral_norm(lib.nn.Linear(3, 5), "bias"),
    "weight": lambda lib, p: p.weight_norm(lib.nn.Linear(3, 5)),
    "weight along": lambda lib, p: p.weight_norm(lib.nn.Conv1d(3, 5, 2), dim=1),
    "weight whole": lambda lib, p: p.weight_norm(lib.nn.Linear(3, 5), dim=None),
}
HOOKED = {
    "weight hook": lambda lib, u: u.weight_norm(lib.nn.Linear(3, 5)),
    "weight hook along": lambda lib, u: u.weight_norm(lib.nn.Conv1d(3, 5, 2), dim=1),
    "weight hook whole": lambda lib, u: u.weight_norm(lib.nn.Linear(3, 5), dim=None),
    "spectral hook": lambda lib, u: u.spectral_norm(lib.nn.Linear(3, 5), n_power_iterations=2),
    "spectral hook conv": lambda lib, u: u.spectral_norm(lib.nn.ConvTranspose1d(3, 5, 2)),
}


@pytest.mark.parametrize("case", [*PARAMETRIZED, *HOOKED])
def test_ready_made(case):
    def program(lib):
        utils = lib.nn.utils
        made = PARAMETRIZED[case](lib, utils.parametrizations) if case in PARAMETRIZED else HOOKED[case](lib, utils)
        width = made.in_features if isinstance(made, lib.nn.Linear) else made.in_channels
        x = lib.randn(2, width) if isinstance(made, lib.nn.Linear) else lib.randn(2, width, 4)
        first = made(x)
        grads = trained(lib, made, total(first))
        second = made(x)                                   # after another power iteration
        quiet = made.eval()(x)
        return [repr(made), dict(made.state_dict()), first, grads, second, quiet]
    agree(program, rtol=2e-4, atol=2e-5)


def test_remove_hooks():
    def program(lib):
        utils, x = lib.nn.utils, lib.randn(2, 3)
        weight, spectral = utils.weight_norm(lib.nn.Linear(3, 5)), utils.spectral_norm(lib.nn.Linear(3, 5))
        weight(x), spectral(x)
        state = spectral.state_dict()
        loaded = utils.spectral_norm(lib.nn.Linear(3, 5))
        loaded.load_state_dict(state)
        utils.remove_weight_norm(weight)
        utils.remove_spectral_norm(spectral)
        return [dict(weight.state_dict()), dict(spectral.state_dict()), weight(x), spectral(x), loaded.eval()(x),
                state._metadata[""]["spectral_norm"], len(spectral._forward_pre_hooks), len(spectral._state_dict_hooks)]
    agree(program)


def test_old_states():
    """What the hooks saved is loaded by the parametrization, and what spectral norm saved before it had `_v`."""
    def program(lib):
        utils, x = lib.nn.utils, lib.randn(2, 3)
        old, new = utils.weight_norm(lib.nn.Linear(3, 5)), utils.parametrizations.weight_norm(lib.nn.Linear(3, 5))
        new.load_state_dict(old.state_dict())
        spectral = utils.spectral_norm(lib.nn.Linear(3, 5))
        spectral(x)
        state = {name: t.clone() for name, t in spectral.state_dict().items() if name != "weight_v"}
        state["weight"] = spectral.weight.detach().clone()
        again = utils.spectral_norm(lib.nn.Linear(3, 5))
        again.load_state_dict(state)
        return [new(x), old(x), again.eval()(x)]
    agree(program, rtol=1e-3, atol=1e-4)


def test_a_recurrent_layer_is_parametrized():
    def program(lib):
        net = lib.nn.utils.parametrizations.weight_norm(lib.nn.LSTMCell(3, 4), "weight_hh")
        return [net(lib.randn(2, 3)), dict(net.state_dict())]
    agree(program)


# --- pruning, fusing, calling -----------------------------------------------------------------------------------------

PRUNED = {
    "identity": lambda p, m: p.identity(m, "bias"),
    "random": lambda p, m: p.random_unstructured(m, "weight", 0.3),
    "smallest": lambda p, m: p.l1_unstructured(m, "weight", 5),
    "nothing": lambda p, m: p.l1_unstructured(m, "weight", 0.0),
    "random slices": lambda p, m: p.random_structured(m, "weight", 0.5, 0),
    "slices": lambda p, m: p.ln_structured(m, "weight", 1, 2, -1),
    "slices by the largest": lambda p, m: p.ln_structured(m, "weight", 0.5, INF, 0),
    "scores": lambda p, m: p.l1_unstructured(m, "weight", 3, importance_scores=m.weight.detach().cos()),
    "twice": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 1, 2, 0), "weight", 0.5),
    "thrice": lambda p, m: p.random_unstructured(
        p.ln_structured(p.random_structured(m, "weight", 1, 1), "weight", 1, 1, 0), "weight", 2),
    "everything": lambda p, m: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4) or m,
    "mask": lambda p, m: p.custom_from_mask(m, "bias", m.bias.detach() > 0),
}


@pytest.mark.parametrize("case", PRUNED)
def test_prune(case):
    def program(lib):
        prune = lib.nn.utils.prune
        layer = PRUNED[case](prune, lib.nn.Linear(4, 6))
        x = lib.randn(2, 4)
        out = layer(x)
        seen = [dict(layer.state_dict()), out, trained(lib, layer, total(out)), prune.is_pruned(layer),
                [name for name, _ in layer.named_parameters()], len(layer._forward_pre_hooks)]
        for name in ("weight", "bias"):
            if hasattr(layer, name + "_orig"):
                prune.remove(layer, name)
        return [*seen, dict(layer.state_dict()), layer(x), prune.is_pruned(layer)]
    agree(program)


def test_fusing():
    def program(lib):
        utils, made = lib.nn.utils, []
        pairs = [(lib.nn.Conv2d(2, 3, 2), lib.nn.BatchNorm2d(3), lib.randn(1, 2, 4, 4)),
                 (lib.nn.ConvTranspose1d(2, 3, 2, bias=False), lib.nn.BatchNorm1d(3, affine=False), lib.randn(1, 2, 4)),
                 (lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3), lib.randn(4, 2))]
        for layer, norm, x in pairs:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            layer.eval(), norm.eval()
            if isinstance(layer, lib.nn.Linear):
                fused = utils.fuse_linear_bn_eval(layer, norm)
            else:
                fused = utils.fuse_conv_bn_eval(layer, norm, isinstance(layer, lib.nn.ConvTranspose1d))
            made += [repr(fused), dict(fused.state_dict()), fused(x), norm(layer(x))]
        return made
    agree(program)


def test_memory_format():
    def program(lib):
        net = lib.nn.Sequential(lib.nn.Conv2d(2, 3, 2), lib.nn.Conv3d(2, 3, 2))
        lib.nn.utils.convert_conv2d_weight_memory_format(net, lib.channels_last)
        lib.nn.utils.convert_conv3d_weight_memory_format(net, lib.channels_last_3d)
        return [[p.stride() for p in net.parameters()], dict(net.state_dict())]
    agree(program)


def tied(lib):
    net = lib.nn.Sequential(lib.nn.Linear(2, 2, bias=False), lib.nn.BatchNorm1d(2), lib.nn.Linear(2, 2, bias=False))
    net[2].weight = net[0].weight
    return net


def functional_call(lib, *args, **kwargs):
    """The same code stands behind `torch.func.functional_call`, which does not warn."""
    return lib.nn.utils.stateless._functional_call(*args, **kwargs)


def test_functional_call():
    def program(lib):
        net, x = tied(lib), lib.randn(4, 2)
        one = lib.ones(2, 2, requires_grad=True)
        buffers = {"1.running_mean": lib.zeros(2), "1.num_batches_tracked": lib.tensor(5), "0.weight": one}
        out = functional_call(lib, net, buffers, (x,))
        return [out, lib.autograd.grad(total(out), one), buffers, dict(net.state_dict()),
                functional_call(lib, net, {"0.weight": one}, x, tie_weights=False),
                functional_call(lib, net, {"2.weight": one}, None, {"input": x})]
    agree(program)


def test_skip_init():
    agree(lambda lib: [repr(lib.nn.utils.skip_init(lib.nn.Linear, 3, 2)), lib.rand(1),
                       tuple(lib.nn.utils.skip_init(lib.nn.Conv1d, 3, 2, 1, bias=False).weight.shape)])


# --- refusals ---------------------------------------------------------------------------------------------------------


def parametrized(*names):
    def make(lib):
        layer = lib.nn.Linear(3, 3)
        for name in names:
            lib.nn.utils.parametrize.register_parametrization(layer, "weight", kinds(lib)[name]())
        return layer
    return make


padded = lambda lib: lib.zeros(4, 3, 2)
linear = lambda lib: lib.nn.Linear(3, 4)
pack = lambda lib, *args: lib.nn.utils.rnn.pack_padded_sequence(*args)
REFUSED = {
    "lengths": lambda lib: pack(lib, padded(lib), [4, 2]),
    "length of zero": lambda lib: pack(lib, padded(lib), [4, 2, 0]),
    "rising lengths": lambda lib: pack(lib, padded(lib), [2, 4, 1]),
    "lengths in two dimensions": lambda lib: pack(lib, padded(lib), lib.tensor([[4, 2, 1]])),
    "nothing to pack": lambda lib: pack(lib, lib.zeros(0, 3, 2), [1, 1, 1]),
    "one dimension": lambda lib: pack(lib, lib.zeros(4), [4]),
    "total length": lambda lib: lib.nn.utils.rnn.pad_packed_sequence(pack(lib, padded(lib), [4, 2, 1]), total_length=3),
    "no sequences": lambda lib: lib.nn.utils.rnn.pad_sequence([]),
    "a number": lambda lib: lib.nn.utils.rnn.pad_sequence(3),
    "shapes": lambda lib: lib.nn.utils.rnn.pad_sequence([lib.ones(2, 3), lib.ones(3, 4)]),
    "side": lambda lib: lib.nn.utils.rnn.pad_sequence([lib.ones(2)], padding_side="middle"),
    "no batch sizes": lambda lib: lib.nn.utils.rnn.PackedSequence(lib.ones(3)),
    "not finite": lambda lib: lib.nn.utils.get_total_norm([lib.tensor([INF])], error_if_nonfinite=True),
    "max norm": lambda lib: lib.nn.utils.clip_grad_norm_(with_grads(lib), "a"),
    "vector": lambda lib: lib.nn.utils.vector_to_parameters([1.0], []),
    "short vector": lambda lib: lib.nn.utils.vector_to_parameters(lib.ones(3), linear(lib).parameters()),
    "parameter name": lambda lib: lib.nn.utils.parametrize.register_parametrization(linear(lib), "a", lib.nn.ReLU()),
    "dtype": parametrized("Wider"), "dtype later": parametrized("Plain", "Wider"),
    "no tensor": parametrized("Number"), "no tensor later": parametrized("Plain", "Number"),
    "inverse dtype": parametrized("Typed"), "inverse dtype later": parametrized("Plain", "Typed"),
    "assignment": lambda lib: setattr(parametrized("Plain")(lib), "weight", lib.ones(3, 3)),
    "nothing to remove": lambda lib: lib.nn.utils.parametrize.remove_parametrizations(linear(lib), "weight"),
    "leaving several": lambda lib: lib.nn.utils.parametrize.remove_parametrizations(
        parametrized("LowRank")(lib), "weight", leave_parametrized=False),
    "no parametrizations": lambda lib: lib.nn.utils.parametrize.ParametrizationList([], lib.ones(1)),
    "pickling": lambda lib: parametrized("Plain")(lib).__getstate__(),
    "orthogonal vector": lambda lib: lib.nn.utils.parametrizations.orthogonal(linear(lib), "bias"),
    "orthogonal name": lambda lib: lib.nn.utils.parametrizations.orthogonal(linear(lib), "scale"),
    "orthogonal map": lambda lib: lib.nn.utils.parametrizations.orthogonal(linear(lib), orthogonal_map="rotation"),
    "spectral iterations": lambda lib: lib.nn.utils.parametrizations.spectral_norm(linear(lib), n_power_iterations=0),
    "spectral dim": lambda lib: lib.nn.utils.parametrizations.spectral_norm(linear(lib), dim=2),
    "spectral hook iterations": lambda lib: lib.nn.utils.spectral_norm(linear(lib), n_power_iterations=0),
    "spectral hook twice": lambda lib: lib.nn.utils.spectral_norm(lib.nn.utils.spectral_norm(linear(lib))),
    "spectral hook name": lambda lib: lib.nn.utils.spectral_norm(linear(lib), "scale"),
    "weight hook twice": lambda lib: lib.nn.utils.weight_norm(lib.nn.utils.weight_norm(linear(lib))),
    "no weight hook": lambda lib: lib.nn.utils.remove_weight_norm(linear(lib)),
    "no spectral hook": lambda lib: lib.nn.utils.remove_spectral_norm(linear(lib)),
    "lazy weight hook": lambda lib: lib.nn.utils.weight_norm(lib.nn.LazyLinear(3)),
    "lazy spectral hook": lambda lib: lib.nn.utils.spectral_norm(lib.nn.LazyLinear(3)),
    "amount": lambda lib: lib.nn.utils.prune.l1_unstructured(linear(lib), "weight", 1.5),
    "amount below zero": lambda lib: lib.nn.utils.prune.l1_unstructured(linear(lib), "weight", -1),
    "amount of all": lambda lib: lib.nn.utils.prune.l1_unstructured(linear(lib), "weight", 100),
    "amount type": lambda lib: lib.nn.utils.prune.l1_unstructured(linear(lib), "weight", "half"),
    "slices of a vector": lambda lib: lib.nn.utils.prune.ln_structured(linear(lib), "bias", 0.5, 2, 0),
    "slices along": lambda lib: lib.nn.utils.prune.ln_structured(linear(lib), "weight", 0.5, 2, 3),
    "scores' shape": lambda lib: lib.nn.utils.prune.l1_unstructured(linear(lib), "weight", 1, lib.ones(2)),
    "not pruned": lambda lib: lib.nn.utils.prune.remove(linear(lib), "weight"),
    "pruning a number": lambda lib: lib.nn.utils.prune.global_unstructured(3, lib.nn.utils.prune.Identity),
    "fusing in training": lambda lib: lib.nn.utils.fuse_linear_bn_eval(linear(lib), lib.nn.BatchNorm1d(4)),
    "fusing widths": lambda lib: lib.nn.utils.fuse_linear_bn_eval(linear(lib).eval(), lib.nn.BatchNorm1d(3).eval()),
    "tied values": lambda lib: functional_call(
        lib, tied(lib), {"0.weight": lib.ones(2, 2), "2.weight": lib.zeros(2, 2)}, lib.ones(1, 2)),
    "no such module": lambda lib: functional_call(lib, tied(lib), {"7.weight": lib.ones(2, 2)}, lib.ones(1, 2)),
    "no name": lambda lib: functional_call(lib, tied(lib), {"": lib.ones(2, 2)}, lib.ones(1, 2)),
    "no tensor there": lambda lib: functional_call(lib, linear(lib), {"weight": 1}, lib.ones(1, 3)),
    "strict": lambda lib: functional_call(lib, linear(lib), {"scale": lib.ones(1)}, lib.ones(1, 3), strict=True),
    "skipping what takes no device": lambda lib: lib.nn.utils.skip_init(lib.nn.ReLU),
    "skipping what is no module": lambda lib: lib.nn.utils.skip_init(int),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal(case):
    both_refuse(REFUSED[case])


@pytest.mark.parametrize("program", [
    lambda lib: lib.nn.utils.clip_grad_norm(with_grads(lib), 1.0),
    lambda lib: lib.nn.utils.clip_grad_norm_((p for p in []), 1.0),
    lambda lib: lib.nn.utils.weight_norm(linear(lib)),
    lambda lib: lib.nn.utils.stateless.functional_call(linear(lib), {}, lib.ones(1, 3)),
], ids=["old name", "used up", "old weight norm", "old call"])
def test_warning(program):
    both_warn(program)


def test_the_same_names():
    for name in ("clip_grad", "convert_parameters", "fusion", "init", "memory_format", "parametrizations",
                 "parametrize", "rnn", "spectral_norm", "weight_norm"):
        theirs = __import__(f"torch.nn.utils.{name}", fromlist=["x"])
        ours = __import__(f"flambeau.nn.utils.{name}", fromlist=["x"])
        assert {n for n in getattr(theirs, "__all__", ()) if not hasattr(ours, n)} == set()
    assert set(torch.nn.utils.__all__) <= set(flambeau.nn.utils.__all__)

"""Batched tensors: what a mapped function does to all slices at once, against the stacked results of single calls."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.base.op import door
from flambeau.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from flambeau.nn import functional as F
from flambeau.watch.finding import FindingWarning

SLICES = 3


def numbers(*shape, seed=0, dtype=np.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def whole(high, *shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


def stacked(function, arguments, mapped):
    """What single calls give, stacked."""
    made = [function(*[a[i] if at in mapped else a for at, a in enumerate(arguments)]) for i in range(SLICES)]
    if isinstance(made[0], torch.Tensor):
        return (torch.stack(made),)
    return tuple(torch.stack(column) for column in zip(*made, strict=True))


def same(got, wanted):
    for a, b in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)


@pytest.fixture
def no_loops(monkeypatch):
    """Whatever goes slice by slice fails."""
    def noticed(what, *facts):
        assert not what.startswith("vmap"), (what, facts)
        return told(what, *facts)
    told = door.noticed
    monkeypatch.setattr(door, "noticed", noticed)


X, Y, M, V, N, P = numbers(3, 4, 5), numbers(3, 4, 5, seed=1), numbers(3, 5, 2), numbers(3, 5), numbers(4, 5), \
    numbers(3, 2, 4, 6, 6)
I, J = whole(4, 3, 6), whole(5, 3, 4, 2)
CASES = {
    "promotes": (lambda x, k: x * k + k, (X.float(), whole(9, 3))),
    "zero dimensions beside integers": (lambda s, k: s + k, (numbers(3).float(), whole(9, 3, 2))),
    "broadcasts": (lambda x, v: torch.where(x > v, x, v), (X, V)),
    "sum": (lambda x: (x.sum(), x.sum(0), x.mean((0, -1), keepdim=True), x.std(1)), (X,)),
    "of nothing but a number": (lambda s: (s.sum(0), s.softmax(0), s.cumsum(0), s.max(0)[0], s.unsqueeze(-1)), (
        V[:, 0],)),
    "extremes": (lambda x: (x.max(), x.min(1)[1], x.argmax(), x.argmin(0, keepdim=True), x.median()), (X,)),
    "order": (lambda x: (*x.sort(0), *x.topk(2), x.flip((0, 1)), x.roll(1), x.roll((1, 2), (0, 1)),
                         x.cummax(1)[0]), (X,)),
    "views": (lambda x: (x.t(), x.view(2, 10), x.reshape(-1), x[1], x[:, 1::2], x[..., None, 0], x.diagonal(), x.expand(
        2, 4, 5), x.permute(1, 0), x.unfold(1, 2, 1), x.movedim(0, 1), x.flatten(), x.squeeze(), x.unbind(1)[2]), (
            X,)),
    "copies": (lambda x: (x.tril(), x.repeat(2, 1, 2), x.rot90(), torch.cat((x, x), 1), torch.stack((x, x), 1),
                          x.trace(), F.pad(x, (1, 2)), torch.diag_embed(x), x.tile(2, 1)), (X,)),
    "mm": (lambda x, m: x @ m, (X, M)),
    "mv": (lambda x, v: (x @ v, v @ x.t(), v.dot(v), torch.outer(v, v)), (X, V)),
    "bmm": (lambda x, y: torch.einsum("ij,kj,kl->il", x, y, x) + torch.bmm(x[None], y.t()[None])[0] @ x, (X, Y)),
    "addmm": (lambda x, m, v: (torch.addmm(v[:2], x, m, beta=2, alpha=3), torch.addmv(x[:, 0], x, v)), (X, M, V)),
    "linear": (lambda v, w, b: F.linear(v, w, b), (V, X, numbers(3, 4))),
    "gather": (lambda x, j: (x.gather(1, j), x.scatter(1, j, 2.0), x.scatter_add(1, j, x[:, :2]), x.take_along_dim(
        j, 1)), (X, J)),
    "index": (lambda x, i: (x[i], x[:, i % 5], x[i, i % 5], x[i[0]], x[None, :, i % 5], x[i.view(2, 3)], x.index_select(
        1, i), x.index_add(0, i, x[i]), x.take(i)), (X, I)),
    "index with gaps": (lambda p, i: (p[i % 2, :, i], p[:, i, i], p[:, i], p[i % 2, :, :, i]), (P, I)),
    "table": (lambda i, w: (F.embedding(i, w), F.embedding(i, w, padding_idx=1)), (I, X)),
    "convolution": (lambda p, w: (F.conv2d(p, w, padding=1), F.conv2d(p[0], w, stride=2), F.conv_transpose2d(
        p, w.transpose(0, 1), stride=2)), (P, numbers(3, 3, 4, 3, 3, seed=4))),
    "pools": (lambda p: (F.max_pool2d(p, 2), F.avg_pool2d(p, 3, 1, 1), F.adaptive_avg_pool2d(p, 2), F.interpolate(
        p, scale_factor=2), F.pixel_shuffle(p, 2)), (P,)),
    "norms": (lambda p, w: (F.layer_norm(p, (6,)), F.group_norm(p, 2, w, w), F.batch_norm(p, None, None, w, w, True),
                            F.instance_norm(p), F.layer_norm(p[0, :, 0, :4], (4,), w, w)), (P, numbers(3, 4))),
    "losses": (lambda x, i: (F.cross_entropy(x, i[:4]), F.cross_entropy(x[0], i[0]), F.nll_loss(
        x, i[:4], reduction="sum"), F.mse_loss(x, x + 1), F.binary_cross_entropy_with_logits(
            x, x.sigmoid()), F.huber_loss(x, 2 * x)), (X, I)),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]), (X, Y)),
    "linear algebra": (lambda x: (torch.linalg.inv(x @ x.t() + torch.eye(4)), torch.linalg.det(x[:, :4]),
                                  torch.linalg.solve(x @ x.t() + torch.eye(4), x), torch.linalg.norm(x),
                                  torch.linalg.svdvals(x), x[:, :4].matrix_exp()), (X,)),
    "writes": (lambda x: written(x), (X,)),
}


def written(x):
    made = x.clone()
    made[1] = x[0] * 2
    made[:, 2].add_(1)
    made += x
    made.clamp_(max=2).index_put_((torch.tensor([0, 1]), torch.tensor([1, 1])), x[2, :2])
    return made.masked_fill_(made < -1, 0.5)


@pytest.mark.parametrize("name", CASES)
def test_all_slices_at_once(name, no_loops):
    function, arguments = CASES[name]
    ways = [tuple(range(len(arguments)))]
    if len(arguments) > 1:
        ways += [(at,) for at in range(len(arguments))]
    for mapped in ways:
        if name == "losses" and mapped == (0,):
            continue                                     # as the others, over one target: some take slices of it
        given = [a if at in mapped else a[0] for at, a in enumerate(arguments)]
        wanted = stacked(function, given, mapped)
        same(vmap(function, in_dims=tuple(0 if at in mapped else None for at in range(len(given))))(*given), wanted)
        turned = [a.movedim(0, -1) if at in mapped else a for at, a in enumerate(given)]
        same(vmap(lambda *a: function(*[t.clone(memory_format=torch.contiguous_format) for t in a]),
                  in_dims=tuple(-1 if at in mapped else None for at in range(len(given))))(*turned), wanted)


@pytest.mark.parametrize("name", ["mm", "addmm", "linear", "index", "table", "convolution", "norms", "losses",
                                  "attention", "writes", "gather", "extremes"])
def test_gradients_outside(name, no_loops):
    """Ordinary autograd through a mapped function, over what has slices and what has none."""
    function, arguments = CASES[name]
    for mapped in (tuple(range(len(arguments))), (0,)):
        if name == "losses" and mapped == (0,):
            continue
        given = [a if at in mapped else a[0] for at, a in enumerate(arguments)]
        found = []
        for run in (lambda a: vmap(function, in_dims=tuple(0 if at in mapped else None for at in range(len(a))))(*a),
                    lambda a: stacked(function, a, mapped)):
            leaves = [a.clone().requires_grad_() if a.is_floating_point() else a for a in given]
            outs = run(leaves)
            outs = [o for o in (outs if isinstance(outs, tuple) else (outs,)) if o.requires_grad]
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            found.append(torch.autograd.grad([o.sin().sum() for o in outs], wanted))
        same(*found)


def loss(weight, bias, x, y):
    return F.cross_entropy(F.linear(F.linear(x, weight, bias).tanh(), weight.t())[None], y[None])


def test_gradients_of_each_sample(no_loops):
    weight, bias, x, y = numbers(4, 5), numbers(4), V, whole(5, 3)
    got = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))(weight, bias, x, y)
    same(got, stacked(grad(loss, argnums=(0, 1)), (weight, bias, x, y), (2, 3)))
    image = numbers(3, 2, 5, 5)
    kernel = numbers(4, 2, 3, 3, seed=1)
    for conv in (lambda w, p: F.conv2d(p[None], w, stride=2, padding=1).sin().sum(),
                 lambda w, p: F.conv_transpose2d(p[None], w.transpose(0, 1), stride=2).sin().sum()):
        same(vmap(grad(conv), in_dims=(None, 0))(kernel, image), stacked(grad(conv), (kernel, image), (1,)))
    table, words = numbers(6, 3), whole(6, 3, 4)
    of_words = lambda t, w: F.embedding(w, t).sin().sum()
    same(vmap(grad(of_words), in_dims=(None, 0))(table, words), stacked(grad(of_words), (table, words), (1,)))


def test_derivatives_within(no_loops):
    f = lambda v: (v.sin() * v.flip(0)).cumsum(0)
    s = lambda v: f(v).square().sum()
    for function in (grad(s), jacrev(f), jacfwd(f), hessian(s), grad(lambda v: grad(s)(v).square().sum()),
                     lambda v: vjp(f, v)[1](v)[0], lambda v: jvp(f, (v,), (v.cos(),)),
                     lambda v: vmap(lambda u: u * v)(v.outer(v)), lambda v: torch.autograd.grad(s(u := v.clone(
                     ).requires_grad_()), u)[0] if v.dim() else v):
        same(vmap(function)(V), stacked(function, (V,), (0,)))


def test_derivatives_around(no_loops):
    weight = numbers(4, 5)
    total = lambda w: vmap(lambda v: (w @ v).sin().sum())(V).square().sum()
    plain = lambda w: (V @ w.t()).sin().sum(1).square().sum()
    for way in (grad, jacrev, hessian):
        same(way(total)(weight), (way(plain)(weight),))
    twice = vmap(grad(lambda v, w: vmap(lambda row: (row * v).sum() ** 3)(w).sum()), in_dims=(0, None))(V, weight)
    same(twice, (vmap(lambda v: (3 * (weight @ v) ** 2) @ weight)(V),))


def test_an_ensemble_is_one_net_of_batches(no_loops):
    nets = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
            for _ in range(SLICES)]
    parameters, buffers = stack_module_state(nets)
    x = numbers(7, 5, dtype=np.float32)
    got = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(got, torch.stack([net(x) for net in nets]))
    got.square().sum().backward()
    for net in nets:
        net(x).square().sum().backward()
    for name, stack in parameters.items():
        each = torch.stack([dict(net.named_parameters())[name].grad for net in nets])
        torch.testing.assert_close(stack.grad, each, rtol=1e-4, atol=1e-5)


def test_chunks_are_put_together(no_loops):
    function = lambda x: (x.sum(0), x * 2)
    for chunk_size in (1, 2, 3, 5):
        same(vmap(function, chunk_size=chunk_size)(X), stacked(function, (X,), (0,)))
    assert vmap(function, out_dims=(1, 2), chunk_size=2)(X)[1].shape == (4, 5, 3)


def test_random_numbers(no_loops):
    torch.manual_seed(0)
    expected = torch.rand(3, 4)
    torch.manual_seed(0)
    assert torch.equal(vmap(lambda v: torch.rand(4), randomness="different")(V), expected)      # as PyTorch draws them
    kept = vmap(lambda v: F.dropout(torch.ones(50), 0.5), randomness="different")(V)
    assert not torch.equal(kept[0], kept[1])
    kept = vmap(lambda v: F.dropout(v.new_ones(50) + 0 * v[0], 0.5), randomness="same")(V)
    assert torch.equal(kept[0], kept[1])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda v: F.dropout(v, 0.5))(V)


@pytest.mark.pinned              # a finding is told once a line
def test_looking_at_numbers_goes_slice_by_slice_and_says_so():
    function = lambda v: v * 2 if v.sum() > 0 else -v
    with pytest.warns(FindingWarning, match="once for each of 3 slices.*data-dependent"):
        got = vmap(function)(V)
    same(got, stacked(function, (V,), (0,)))
    with pytest.warns(FindingWarning, match="dynamic shape"):
        same(vmap(lambda v: v[v > -9].sum())(V), stacked(lambda v: v.sum(), (V,), (0,)))


@pytest.mark.pinned              # a finding is told once a line
def test_what_was_written_is_not_written_again():
    count = torch.zeros(())

    def function(v):
        count.add_(1)
        return v if v.sum() > 0 else -v
    with pytest.raises(RuntimeError, match="data-dependent"):
        vmap(function)(V)
    assert count.item() == 1

    def harmless(v):
        own = torch.zeros(())
        own.add_(1)
        return v * own if v.sum() > 0 else -v
    with pytest.warns(FindingWarning):
        same(vmap(harmless)(V), stacked(harmless, (V,), (0,)))


@pytest.mark.pinned              # a finding is told once a line
def test_an_operation_without_a_rule_says_so():
    x = numbers(3, 20).float()
    with pytest.warns(FindingWarning, match="histc has no rule"):
        got = vmap(lambda v: torch.histc(v, 4, -1, 1))(x)
    same(got, stacked(lambda v: torch.histc(v, 4, -1, 1), (x,), (0,)))


def test_writes_reach_what_is_mapped(no_loops):
    held = X.clone()
    vmap(lambda x: x[1].mul_(x[0]), in_dims=1)(held)
    expected = X.clone()
    expected[1] = X[0] * X[1]
    assert torch.equal(held, expected)
    leaf = V.clone().requires_grad_()
    vmap(lambda v: (v * v).mul_(v).add_(1).exp_())(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, 3 * V ** 2 * (V ** 3 + 1).exp())


class Doubled(torch.autograd.Function):
    """Twice its input, with a gradient of three times what comes, to be told apart."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return 2 * x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return 3 * g * w, 3 * (g * x).sum()


def test_functions_of_the_users(no_loops):
    w = numbers()
    function = lambda v, w: Doubled.apply(v, w).sin()
    same(vmap(function, in_dims=(0, None))(V, w), stacked(function, (V, w), (0,)))
    leaf, shared = V.clone().requires_grad_(), w.clone().requires_grad_()
    vmap(function, in_dims=(0, None))(leaf, shared).sum().backward()
    plain, alone = V.clone().requires_grad_(), w.clone().requires_grad_()
    torch.stack([function(v, alone) for v in plain]).sum().backward()
    torch.testing.assert_close(leaf.grad, plain.grad)
    torch.testing.assert_close(shared.grad, alone.grad)

"""Checkpoints that keep some results, beside PyTorch's: what a policy is asked about, and the gradients."""
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau

# What is computed, and the operators among those that PyTorch's policy is asked about that ours has to be asked about.
ASKED = [
    (lambda t, x, w: x @ w, "mm.default"),
    (lambda t, x, w: t.nn.functional.linear(x, w, w[0]), "addmm.default"),
    (lambda t, x, w: t.bmm(x[None], w[None]), "bmm.default"),
    (lambda t, x, w: t.nn.functional.conv1d(x, w[:, :, None]), "convolution.default"),
    (lambda t, x, w: t.nn.functional.layer_norm(x, (4,)), "native_layer_norm.default"),
    (lambda t, x, w: t.nn.functional.group_norm(x[None], 2), "native_group_norm.default"),
    (lambda t, x, w: t.nn.functional.batch_norm(x, None, None, training=True), "native_batch_norm.default"),
    (lambda t, x, w: x.softmax(1) + x.log_softmax(1), "_softmax.default _log_softmax.default add.Tensor"),
    (lambda t, x, w: t.nn.functional.gelu(x) + t.nn.functional.silu(x) + x.relu(),
     "gelu.default silu.default relu.default"),
    (lambda t, x, w: x.exp() * 2 - x.tanh() / w, "exp.default mul.Tensor sub.Tensor tanh.default div.Tensor"),
    (lambda t, x, w: x ** 2 + x.abs() ** w, "pow.Tensor_Scalar pow.Tensor_Tensor abs.default"),
    (lambda t, x, w: t.where(x > 0, x, w).sum(1).mean(), "gt.Scalar where.self sum.dim_IntList mean.default"),
    (lambda t, x, w: x.max(1)[0] + x.var(1), "max.dim var.correction"),
    (lambda t, x, w: t.cat([x, w]).cumsum(0), "cat.default cumsum.default"),
    (lambda t, x, w: t.nn.functional.max_pool2d(x[None], 2), "max_pool2d_with_indices.default"),
    (lambda t, x, w: t.nn.functional.nll_loss(x, t.arange(4)), "nll_loss_forward.default"),
    (lambda t, x, w: x.masked_fill(w > x, 1.0) + x.gather(1, t.arange(4)[:, None]),
     "gt.Tensor masked_fill.Scalar gather.default"),
    (lambda t, x, w: t.fft.fft(x).abs() + t.linalg.inv(w).norm(), "_fft_r2c.default linalg_inv_ex.default"),
    (lambda t, x, w: x.topk(2)[0].sum() + x.sort()[0], "topk.default sort.default"),
    (lambda t, x, w: x.float().clone(), "_to_copy.default clone.default"),
]


@pytest.mark.parametrize("f, operators", ASKED, ids=[operators for _, operators in ASKED])
@pytest.mark.parametrize("saved", ["nothing", "these", "everything"])
def test_what_is_asked_and_what_comes_of_it(f, operators, saved):
    wanted, found = {f"aten.{name}" for name in operators.split()}, []
    values = [np.random.default_rng(n).standard_normal((4, 4)) for n in range(2)]
    for t in torch, flambeau:
        selective = t.utils.checkpoint
        asked = set()

        def policy(context, op, *args, **kwargs):
            asked.add(str(op))
            keep = saved == "everything" or saved == "these" and str(op) in wanted
            return selective.CheckpointPolicy.MUST_SAVE if keep else selective.CheckpointPolicy.PREFER_RECOMPUTE

        x, w = (t.tensor(value, requires_grad=True) for value in values)
        contexts = functools.partial(selective.create_selective_checkpoint_contexts, policy)
        out = selective.checkpoint(lambda x, w: f(t, x, w), x, w, use_reentrant=False, context_fn=contexts)
        out.sin().sum().backward()
        assert wanted <= asked, t.__name__
        found.append([g.tolist() for g in (out.detach(), x.grad, w.grad if w.grad is not None else x.grad)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-9)


def test_names_and_values():
    theirs, ours = torch.utils.checkpoint.CheckpointPolicy, flambeau.utils.checkpoint.CheckpointPolicy
    assert {p.name: p.value for p in ours} == {p.name: p.value for p in theirs}


def test_second_backwards_and_writes_are_refused_alike():
    for t in torch, flambeau:
        selective, kept = t.utils.checkpoint, []

        def f(x):
            kept.append(x @ x)
            return kept[-1].sin().sum()

        contexts = functools.partial(selective.create_selective_checkpoint_contexts, [t.ops.aten.mm.default])
        x = t.ones(3, 3, requires_grad=True)
        loss = selective.checkpoint(f, x, use_reentrant=False, context_fn=contexts)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="You are only allowed to backward once on any region computed under"):
            loss.backward()
        loss = selective.checkpoint(f, x, use_reentrant=False, context_fn=contexts)
        with t.no_grad():
            kept[-1].zero_()
        with pytest.raises(RuntimeError, match="cached during selective activation checkpoint has been mutated"):
            loss.backward()

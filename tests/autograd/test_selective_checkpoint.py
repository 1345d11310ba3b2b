"""Checkpoints that keep the results of some operations."""
import functools
import importlib

import pytest

import flambeau as torch
from flambeau.base.pytree import tree_leaves
from flambeau.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ..ops import rows as tables
from ..ops.test_tables import TABLES
from ..thorough import sample

for _name in TABLES:
    importlib.import_module(f"tests.ops.{_name}")
aten = torch.ops.aten
SAVE, AGAIN = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def selected(f, policy, *args, early_stop=True, **options):
    return checkpoint(f, *args, use_reentrant=False, early_stop=early_stop,
                      context_fn=functools.partial(create_selective_checkpoint_contexts, policy, **options))


def network(x, w):
    h = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))
    h = torch.nn.functional.dropout(h.softmax(1), 0.3) @ w
    h = h.view(2, -1).t().reshape(x.shape) * 2
    values, places = h.max(1)
    return (h.exp() * values[:, None]).sin().sum() + places.sum()


@pytest.mark.parametrize("policy", [
    [aten.mm.default, aten.addmm.default], [aten.gelu.default], [aten.exp.default, aten._softmax.default],
    lambda *_, **__: SAVE, lambda *_, **__: AGAIN, lambda *_, **__: True, lambda *_, **__: False,
    lambda context, op, *_, **__: SAVE if "max" in str(op) else AGAIN],
    ids=["products", "one", "two", "all", "none", "True", "False", "by name"])
def test_gradients_are_those_of_the_plain_run(policy):
    found = []
    for run in (lambda: network(x, w), lambda: selected(network, policy, x, w)):
        x, w = numbers(6, 4).requires_grad_(), numbers(4, 4, seed=1).requires_grad_()
        torch.manual_seed(3)
        loss = run()
        loss.backward()
        found.append((loss.item(), x.grad.tolist(), w.grad.tolist()))
    assert found[0] == found[1]


def test_what_is_saved_is_not_computed_again():
    """Seen by what the function reads: it is exchanged between forward and backward."""
    x, weights = numbers(3, 3).requires_grad_(), {}

    def f(x):
        return (x @ weights["w"]).sin().sum()

    found = {}
    for name, policy in {"saved": [aten.mm.default], "again": [aten.bmm.default]}.items():
        weights["w"] = old = numbers(3, 3, seed=1)
        loss = selected(f, policy, x)
        weights["w"] = new = numbers(3, 3, seed=2)
        found[name], = torch.autograd.grad(loss, x)
    torch.testing.assert_close(found["saved"], (x @ old).cos() @ new.t())
    torch.testing.assert_close(found["again"], (x @ new).cos() @ new.t())


def test_an_operator_of_the_program_is_called_once():
    calls = []

    @torch.library.custom_op("selective_checkpoint::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x ** 3

    cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
                           setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    operator, told = torch.ops.selective_checkpoint.cube.default, []

    def policy(answer, context, op, *args, **kwargs):
        if op is not operator:
            return AGAIN
        told.append((args[0].tolist(), context.op_output.tolist(), context.is_recompute))
        return answer

    for answer, count in (SAVE, 1), (AGAIN, 2):
        x = torch.tensor([1., 2.], requires_grad=True)
        calls.clear()
        selected(lambda x: cube(x * 2).cos().sum(), functools.partial(policy, answer), x).backward()
        assert len(calls) == count and told.pop() == ([2, 4], [8, 64], False) and not told
        y = (x.detach() * 2).requires_grad_()
        torch.testing.assert_close(x.grad, 2 * torch.autograd.grad((y ** 3).cos().sum(), y)[0])


def test_the_policy_is_asked_once_about_every_operation():
    asked = []

    def policy(context, op, *args, **kwargs):
        assert type(context) is SelectiveCheckpointContext and not context.is_recompute
        asked.append(str(op))
        return AGAIN

    x = numbers(3, 3).requires_grad_()
    selected(lambda x: ((x @ x).exp() + 1).sum(1).mean(), policy, x).backward()
    assert asked == ["aten.mm.default", "aten.exp.default", "aten.add.Tensor", "aten.sum.dim_IntList",
                     "aten.mean.default"]


def test_a_policy_may_compute_and_the_function_may_write():
    """What the policy calls is not asked about; what is written in place is what the plain run has."""
    def f(x):
        y = (x @ x).sin()
        y[1:].mul_(2).add_(x[1:].detach())
        return (y.sin() @ x).tanh().sum()

    def policy(context, op, *args, **kwargs):
        return SAVE if context.op_output.abs().max().item() > 0.9 else AGAIN

    x = numbers(3, 3).requires_grad_()
    expected, = torch.autograd.grad(f(x), x)
    found, = torch.autograd.grad(selected(f, policy, x, allow_cache_entry_mutation=True), x)
    torch.testing.assert_close(found, expected)


def test_one_backward_for_each_checkpoint():
    x = numbers(3, 3).requires_grad_()
    loss = selected(lambda x: (x @ x).sin().sum(), [aten.mm.default], x)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        loss.backward()


def test_a_saved_result_that_was_written():
    kept = []

    def f(x):
        kept.append(x @ x)
        return kept[-1].sin().sum()

    for options, refused in ({}, True), ({"allow_cache_entry_mutation": True}, False):
        x = numbers(3, 3).requires_grad_()
        loss = selected(f, [aten.mm.default], x, **options)
        with torch.no_grad():
            kept[-1].zero_()
        if refused:
            with pytest.raises(RuntimeError, match="has been mutated"):
                loss.backward()
        else:
            loss.backward()                   # by what was saved, not by what was written over it
            constant = x.detach()
            cosine = (constant @ constant).cos()
            torch.testing.assert_close(x.grad, cosine @ constant.t() + constant.t() @ cosine)


def test_another_course_in_the_second_run():
    x, small, more = numbers(3, 3).requires_grad_(), torch.ones(2, 2), []

    def f(x):
        if more:
            more.append(small @ small)
        return (x @ x).sin().sum() + (x @ x).exp().sum()

    for policy, words in (([aten.mm.default], r"aten.mm.default gave \[3, 3\] of torch.float64 in forward and \[2, 2\] "
                                              "of torch.float32 during backward"),
                          ([aten.bmm.default], "aten.mm.default invocation index 2 encountered during backward but not "
                                               "found in storage")):
        more.clear()
        loss = selected(f, policy, x)
        more.append(1)
        with pytest.raises(RuntimeError, match=words):
            loss.backward()


@pytest.mark.parametrize("row", sample([row for row in tables.ROWS if row.grad], 5), ids=lambda row: row.name)
@pytest.mark.parametrize("policy", [lambda *_, **__: SAVE, lambda context, op, *_, **__: len(str(op)) % 2 > 0],
                         ids=["all", "half"])
def test_every_operation(row, policy):
    state = torch.get_rng_state()

    def gradients(run):
        torch.set_rng_state(state)
        given = row.tensors(leaf=True, dtype=torch.float64)
        out = [one for one in tree_leaves(run(*given)) if isinstance(one, torch.Tensor) and one.requires_grad]
        loss = sum((torch.view_as_real(one.resolve_conj()) if one.is_complex() else one).sin().sum() for one in out)
        return torch.autograd.grad(loss, [t for t in given if t.requires_grad], allow_unused=True)

    expected = gradients(row.ours)
    found = gradients(lambda *given: selected(row.ours, policy, *given, allow_cache_entry_mutation=True))
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_bad_policies():
    with pytest.raises(ValueError, match=r"you have `torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`"):
        create_selective_checkpoint_contexts([aten.mm])
    with pytest.raises(ValueError, match="to be an OpOverload but got: 3"):
        create_selective_checkpoint_contexts([3])
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts("mm")
    with pytest.raises(NotImplementedError, match="MUST_SAVE keeps the result where it is"):
        selected(torch.sin, lambda *_, **__: CheckpointPolicy.MUST_CPU_OFFLOAD, numbers(3).requires_grad_())


def test_without_gradients_nothing_is_asked():
    with torch.no_grad():
        assert selected(lambda x: x.sum(), lambda *_, **__: 1 / 0, torch.ones(3)).item() == 3

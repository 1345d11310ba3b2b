"""Programs of views, in-place writes and changes of mode, run by PyTorch and by Flambeau: after each step everything
that can be seen of every tensor agrees, and so do the gradients at the end."""
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import flambeau

MODES = {"grad": lambda lib: nullcontext(), "no_grad": lambda lib: lib.no_grad(),
         "inference": lambda lib: lib.inference_mode()}

VIEWS = {"detach": lambda x, n: x.detach(), "alias": lambda x, n: x[...], "view": lambda x, n: x.view(x.shape),
         "unsqueeze": lambda x, n: x.unsqueeze(n), "select": lambda x, n: x[n], "slice": lambda x, n: x[n:],
         "column": lambda x, n: x[..., n], "chunk": lambda x, n: x.chunk(2)[0], "unbind": lambda x, n: x.unbind(0)[n],
         "flatten": lambda x, n: x.reshape(-1), "t": lambda x, n: x.t(), "diagonal": lambda x, n: x.diagonal()}

WRITES = {"mul_": lambda x, y: x.mul_(2), "mul_ by": lambda x, y: x.mul_(y.mean()),
          "add_": lambda x, y: x.add_(y.sum()),
          "zero_": lambda x, y: x.zero_(), "copy_": lambda x, y: x.copy_(y), "sin_": lambda x, y: x.sin_(),
          "set item": lambda x, y: x.__setitem__(..., y.mean()), "fill_": lambda x, y: x.fill_(3.0),
          "t_": lambda x, y: x.t_(), "detach_": lambda x, y: x.detach_(),
          "requires_grad_": lambda x, y: x.requires_grad_(),
          "no grad": lambda x, y: x.requires_grad_(False)}

READS = {"mul": lambda x, y: x * 2, "square": lambda x, y: x * x, "clone": lambda x, y: x.clone(),
         "product": lambda x, y: x * y.sum()}

tensors = st.integers(0, 7)
modes = st.sampled_from(["grad", "grad", "grad", "grad", "no_grad", "inference"])
steps = st.one_of(st.tuples(modes, st.sampled_from(list(VIEWS)), tensors, st.integers(0, 1)),
                  st.tuples(modes, st.sampled_from(list(WRITES)), tensors, tensors),
                  st.tuples(modes, st.sampled_from(list(READS)), tensors, tensors))


def fits(x, name, n):
    """Whether the shape of `x` allows the view, so that there is one reason at most to refuse it.

    PyTorch lets a detached look at an inference tensor be written, which is left out here.
    """
    if name == "detach" and x.is_inference():
        return False
    need = {"select": 1, "slice": 1, "column": 1, "chunk": 1, "unbind": 1, "diagonal": 2, "unsqueeze": n}.get(name, 0)
    return x.dim() >= need and (name not in ("t", "t_") or x.dim() <= 2) \
        and (name not in ("select", "unbind") or x.shape[0] > n) and (name != "column" or x.shape[-1] > n)


def take(lib, pool, mode, name, of, other):
    """One step: the tensor it made, if any, joins the pool. The name of the exception, where it raised."""
    x = pool[of % len(pool)]
    try:
        with MODES[mode](lib):
            if name in WRITES:
                WRITES[name](x, pool[other % len(pool)])
            elif name in VIEWS:
                pool.append(VIEWS[name](x, other))
            else:
                pool.append(READS[name](x, pool[other % len(pool)]))
    except Exception as error:
        return type(error).__name__
    return None


def seen(read):
    try:
        return read()
    except RuntimeError:                       # a view whose history cannot follow a write to its base
        return "refused"


def face(x, pool):
    """What can be seen of a tensor from outside."""
    return dict(requires_grad=x.requires_grad, leaf=seen(lambda: x.is_leaf),
                node=seen(lambda: x.grad_fn and x.grad_fn.name()), view=x._base is not None,
                base=next((n for n, t in enumerate(pool) if t is x._base), None),
                # PyTorch counts clones and detached looks of inference tensors in ways of their own.
                version=None if any(t.is_inference() for t in pool) else x._version,
                shape=tuple(x.shape), strides=tuple(x.stride()))


def gradient(x, pool, scale):
    """The exception of a backward from `x`, or the gradients of all leaves after it."""
    try:
        (x * scale).sum().backward(retain_graph=True)
    except Exception as error:
        return type(error).__name__
    return [None if seen(lambda t=t: t.is_leaf) is not True or t.grad is None else t.grad.tolist() for t in pool]


def stale(pool):
    """Whether some view of PyTorch's has lost its way to a leaf: see "Not copied" in docs/differences.md."""
    return any(seen(lambda x=x: x.grad_fn and x.grad_fn.name()) == "AsStridedBackward0" and not x._base.requires_grad
               for x in pool if x._base is not None)


def run(start, program):
    pools = []
    for lib in (torch, flambeau):
        weight = lib.tensor([0.5, 1.5, 2.5], requires_grad=True)
        x = lib.arange(1.0, 7.0)
        pools.append([weight, x, x.reshape(2, 3)] if start else [weight, lib.arange(1.0, 7.0).reshape(2, 3)])
    theirs, mine = pools
    for step in program:
        if not fits(theirs[step[2] % len(theirs)], step[1], step[3]):
            continue
        want, got = take(torch, theirs, *step), take(flambeau, mine, *step)
        if stale(theirs):
            return
        assert got == want, step
        if want is not None and any(x.is_inference() for x in theirs):
            return                             # PyTorch refuses a write to an inference tensor after it was done
        for n, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert face(a, mine) == face(b, theirs), (step, n)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a.detach().tolist(), b.detach().tolist(), 1e-4, err_msg=str(step))
    for n, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        if b.requires_grad:
            got, want = gradient(a, mine, n + 1), gradient(b, theirs, n + 1)
            assert isinstance(got, str) == isinstance(want, str) and (got == want or not isinstance(got, str)), n
            for g, w in zip(got, want, strict=True) if isinstance(want, list) else ():
                assert (g is None) == (w is None), n
                if w is not None:
                    np.testing.assert_allclose(g, w, 1e-4, 1e-4)


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(st.booleans(), st.lists(steps, min_size=2, max_size=9))
def test_programs(start, program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(start, program)


@pytest.mark.parametrize("write", ["mul_", "zero_", "copy_", "set item", "fill_", "sin_", "t_"])
def test_a_leaf_that_is_a_view_is_not_written_through_a_view(write):
    """The base has no node of its own, so the history of a write to it could not lead to the leaf."""
    for lib in (torch, flambeau):
        base = lib.arange(12.0)
        leaf = base[4:].reshape(4, 2).requires_grad_()
        for x in (leaf, leaf[1:3], leaf.t()):
            with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
                WRITES[write](x, lib.ones(()))
        assert not base.requires_grad and base.tolist() == list(range(12)) and base._version == 0


def test_what_data_counts():
    """`.data` counts its own writes, and shares the count with its views and detached looks only."""
    seen = []
    for lib in (torch, flambeau):
        x = lib.zeros(4)
        d, counts = x.data, []
        for write in (lambda: d.add_(1), lambda: d[1:].mul_(2), lambda: d.view(2, 2)[0].zero_(), lambda: x.add_(1),
                      lambda: d.detach().add_(1), lambda: x[0].fill_(3), lambda: x.data.zero_(),
                      lambda: d.data.add_(1)):
            write()
            counts.append((x._version, d._version, d[0]._version, x[1:]._version, d.detach()._version, x.data._version))
        leaf = lib.ones(3, requires_grad=True)
        y = leaf.view(3)
        leaf.data.mul_(2)
        seen.append((counts, y.grad_fn.name(), leaf._version, x.tolist()))
    assert seen[0] == seen[1]

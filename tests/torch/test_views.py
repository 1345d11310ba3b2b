"""Views against PyTorch's: geometry, what they share, their nodes and gradients, and writing through them.

Random walks of view operations run in both libraries; after each step everything visible must agree.
"""
import random
import warnings

import numpy as np
import pytest
import torch

import flambeau

WALKS = 150


def start(lib, shape, requires_grad=False):
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return lib.tensor(array, requires_grad=requires_grad)


def dims(pick, x, n=1):
    chosen = pick.sample(range(x.dim()), n)
    return [d - x.dim() if pick.random() < 0.3 else d for d in chosen]


def step(pick, x):
    """A view operation that fits `x` (a tensor of PyTorch's): a function of the tensor, and its words."""
    name = pick.choice("view reshape expand permute transpose t unsqueeze squeeze squeeze1 squeeze2 select "
                       "slice narrow flatten unflatten movedim diagonal unfold split chunk unbind as_strided "
                       "mT T tensor_split ravel contiguous swapaxes view_as".split())
    n = x.dim()
    if name == "view" or name == "reshape":
        size = list(x.shape)
        if pick.random() < 0.5 and n >= 2:
            d = pick.randrange(n - 1)
            size[d:d + 2] = [size[d] * size[d + 1]]
        else:
            size.insert(pick.randrange(n + 1), 1)
        return name, (tuple(size),)
    if name == "view_as":
        return "view", (tuple(x.shape),)
    if name == "expand":
        sizes = [pick.choice([s, -1]) if s != 1 else pick.randrange(1, 4) for s in x.shape]
        return name, ((pick.randrange(1, 3), *sizes),)
    if name == "permute":
        return name, (tuple(pick.sample(range(n), n)),)
    if name == "unsqueeze":
        return name, (pick.randrange(-n - 1, n + 1),)
    if name == "squeeze":
        return name, ()
    if name == "T":
        return "permute", (tuple(range(n))[::-1],)
    if name in ("ravel", "contiguous"):
        return name, ()
    if n == 0:
        return "unsqueeze", (0,)
    d = dims(pick, x)[0]
    size = x.shape[d]
    if name == "squeeze1":
        return "squeeze", (d,)
    if name == "squeeze2":
        return "squeeze", (tuple(dims(pick, x, pick.randrange(1, n + 1))),)
    if name == "select" and size:
        return name, (d, pick.randrange(-size, size))
    if name == "slice" and size:
        a, b = sorted((pick.randrange(size), pick.randrange(size + 1)))
        return "narrow", (d, a, b - a)
    if name == "narrow":
        a = pick.randrange(size + 1)
        return name, (d, a, pick.randrange(size - a + 1))
    if name == "flatten":
        a, b = sorted((pick.randrange(n), pick.randrange(n)))
        return name, (a, b)
    if name == "unflatten" and size % 2 == 0 and size:
        return name, (d, (2, -1))
    if name == "unfold" and size:
        window = pick.randrange(1, size + 1)
        return name, (d, window, pick.randrange(1, 3))
    if name in ("split", "chunk", "tensor_split") and size:
        return name, (pick.randrange(1, size + 1), d)
    if name == "unbind" and size:
        return name, (d,)
    if name == "t" and n <= 2:
        return name, ()
    if n >= 2:
        a, b = dims(pick, x, 2)
        if name in ("transpose", "swapaxes", "movedim"):
            return name, (a, b)
        if name == "diagonal":
            return name, (pick.randrange(-1, 2), a, b)
        if name == "mT":
            return "transpose", (-2, -1)
    if name == "as_strided" and x.untyped_storage().nbytes() // 4 - x.storage_offset() >= 3:
        return name, ((2, 2), (pick.randrange(2), 1), pick.choice([x.storage_offset(), 0]))
    return "view", (tuple(x.shape),)


def node_name(x):
    try:
        return x.grad_fn.name() if x.grad_fn is not None else None
    except RuntimeError as error:                # one of several views, after a write to its base
        return str(error)[str(error).index("is a view and"):].split("\n")[0]


def face(x, base):
    """What can be seen of a view from outside."""
    return dict(shape=tuple(x.shape), strides=tuple(x.stride()), offset=x.storage_offset(), view=x._is_view(),
                base=x._base is base, version=x._version, node=node_name(x), contiguous=x.is_contiguous(),
                values=x.tolist())


def apply(x, name, args, pick):
    out = getattr(x, name)(*args)
    return out[pick] if isinstance(out, tuple) else out


@pytest.mark.parametrize("seed", range(WALKS))
def test_walk(seed):
    """Each step of a chain of views looks like PyTorch's, and so does the gradient at its end."""
    pick = random.Random(seed)
    shape = tuple(pick.choice([1, 2, 3, 4]) for _ in range(pick.randrange(1, 5)))
    roots = [start(lib, shape, requires_grad=True) for lib in (torch, flambeau)]
    theirs, mine = bases = [root * 1 for root in roots]
    path = [f"{list(shape)}"]
    for _ in range(pick.randrange(1, 6)):
        name, args = step(pick, theirs)
        which = pick.randrange(10)
        path.append(f"{name}{args}")
        try:
            parts = getattr(theirs, name)(*args)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as caught:
                getattr(mine, name)(*args)
            assert str(error).split("(")[0][:40] in str(caught.value), path
            continue
        which = which % len(parts) if isinstance(parts, tuple) else 0
        if isinstance(parts, tuple) and not parts:
            break
        theirs, mine = apply(theirs, name, args, which), apply(mine, name, args, which)
        want, got = face(theirs, bases[0]), face(mine, bases[1])
        assert got == want, path
    g = np.random.default_rng(seed).standard_normal(tuple(theirs.shape)).astype(np.float32)
    theirs.backward(torch.from_numpy(g))
    mine.backward(flambeau.tensor(g))
    np.testing.assert_allclose(roots[1].grad.numpy(), roots[0].grad.numpy(), 1e-5, 1e-5, err_msg=str(path))


@pytest.mark.parametrize("seed", range(WALKS))
def test_write(seed):
    """Writing in place to a view changes its base, its sister views and all their histories as in PyTorch."""
    pick = random.Random(1000 + seed)
    shape = tuple(pick.choice([2, 3, 4]) for _ in range(pick.randrange(1, 4)))
    roots = [start(lib, shape, requires_grad=True) for lib in (torch, flambeau)]
    bases = [root * 1 for root in roots]
    views = [[base] for base in bases]
    path = [f"{list(shape)}"]
    for _ in range(pick.randrange(2, 7)):
        at = pick.randrange(len(views[0]))
        theirs, mine = (v[at] for v in views)
        if pick.random() < 0.5:
            name, args = step(pick, theirs)
            if name in ("as_strided", "expand", "unfold", "reshape", "flatten", "ravel", "contiguous"):
                continue
            try:
                parts = getattr(theirs, name)(*args)
            except RuntimeError:
                continue
            which = pick.randrange(10) % len(parts) if isinstance(parts, tuple) and parts else 0
            if parts == ():
                continue
            path.append(f"{at}.{name}{args}")
            for v in views:
                v.append(apply(v[at], name, args, which))
        else:
            write = pick.choice(["mul_", "zero_", "fill_", "copy_", "t_", "unsqueeze_", "squeeze_"])
            args = {"mul_": (2.0,), "fill_": (7.0,), "unsqueeze_": (0,)}.get(write, ())
            path.append(f"{at}.{write}")
            if write == "copy_":
                source = np.float32(pick.random()) * np.ones(tuple(theirs.shape), np.float32)
                both = [(lib.tensor(source, requires_grad=True) * 1,) for lib in (torch, flambeau)]
            else:
                both = [args, args]
            try:
                getattr(theirs, write)(*both[0])
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as caught:
                    getattr(mine, write)(*both[1])
                for words in ("multiple views", "leaf Variable", "expects a tensor with <= 2"):
                    assert (words in str(error)) == (words in str(caught.value)), path
                continue
            getattr(mine, write)(*both[1])
        for a, b in zip(*views, strict=True):
            want, got = face(a, bases[0]), face(b, bases[1])
            if "is a view" not in str(want["node"]):
                assert (want.pop("node") is None) == (got.pop("node") is None), path
            assert got == want, path
    live = [k for k, v in enumerate(views[0]) if "is a view" not in str(node_name(v))]
    total = [sum((vs[k] * (k + 1)).sum() for k in live) for vs in views]
    if not total[0].requires_grad:
        assert not total[1].requires_grad
        return
    total[0].backward()
    total[1].backward()
    np.testing.assert_allclose(roots[1].grad.numpy(), roots[0].grad.numpy(), 1e-5, 1e-5, err_msg=str(path))


COPIES = {
    "clone": lambda lib, x: x.clone(),
    "clone contiguous": lambda lib, x: x.clone(memory_format=lib.contiguous_format),
    "clone channels_last": lambda lib, x: x.clone(memory_format=lib.channels_last),
    "contiguous": lambda lib, x: x.contiguous(),
    "contiguous channels_last": lambda lib, x: x.contiguous(memory_format=lib.channels_last),
    "to dtype": lambda lib, x: x.to(lib.float64),
    "to copy": lambda lib, x: x.to(x.dtype, copy=True),
    "to channels_last": lambda lib, x: x.to(memory_format=lib.channels_last),
    "to contiguous": lambda lib, x: x.to(memory_format=lib.contiguous_format),
    "cat": lambda lib, x: lib.cat([x, x], -1),
    "cat mixed": lambda lib, x: lib.cat([x, x.contiguous()], 0),
    "stack": lambda lib, x: lib.stack([x, x]),
    "stack 1": lambda lib, x: lib.stack([x, x], 1),
    "stack -1": lambda lib, x: lib.stack([x, x], -1),
    "flip": lambda lib, x: x.flip(0),
    "roll": lambda lib, x: x.roll(1, 0),
    "rot90": lambda lib, x: x.rot90(),
    "repeat": lambda lib, x: x.repeat(*[2] * x.dim()),
    "tril": lambda lib, x: x.tril(),
    "fill": lambda lib, x: lib.fill(x, 1),
    "diag_embed": lambda lib, x: x.diag_embed(),
    "add": lambda lib, x: x + 1,
}


@pytest.mark.parametrize("how", COPIES)
def test_layout_of_copies(how):
    """A copy's strides are PyTorch's, whatever the order and gaps of what is copied."""
    pick = random.Random(0)
    for _ in range(60):
        n = pick.choice([2, 3, 4, 4, 5])
        shape = tuple(pick.choice([1, 2, 3]) for _ in range(n))
        order = tuple(pick.sample(range(n), n))
        cut, wide = pick.random() < 0.3, pick.random() < 0.2
        found = []
        for lib in (torch, flambeau):
            x = start(lib, tuple(s + cut for s in shape)).permute(order)
            if cut:
                for d in range(n):
                    x = x.narrow(d, 0, x.shape[d] - 1)
            if wide:
                x = x.select(0, 0).unsqueeze(0).expand(3, *[-1] * (n - 1))
            try:
                out = COPIES[how](lib, x)
                strides = [s for s, k in zip(out.stride(), out.shape) if k > 1]
                found.append((out.is_contiguous(), out is x, strides, tuple(out.shape)))
            except RuntimeError as error:
                found.append(str(error)[:30])
        assert found[0] == found[1], (shape, order, cut, wide)


def test_view_refusal_names_the_axes():
    x = flambeau.zeros(2, 3, 4, 5).permute(0, 2, 1, 3)
    with pytest.raises(RuntimeError) as caught:
        x.view(2, 12, 5)
    words = str(caught.value)
    assert "view size is not compatible with input tensor's size and stride (at least one dimension spans " \
           "across two contiguous subspaces). Use .reshape(...) instead." in words
    assert "dimensions 1 and 2" in words and "strides [60, 5, 20, 1]" in words and "test_views.py" in words


@pytest.mark.parametrize("make", [lambda x: x.unbind(), lambda x: x.split(1), lambda x: x.chunk(2)])
def test_several_views_refuse_writes(make):
    for lib in (torch, flambeau):
        x = start(lib, (2, 3), requires_grad=True) * 1
        with pytest.raises(RuntimeError, match="returns multiple views"):
            make(x)[0].mul_(2)
        make(start(lib, (2, 3)))[0].mul_(2)              # nobody needs a gradient: allowed


def test_dtype_views():
    for lib in (torch, flambeau):
        x = lib.arange(4, dtype=lib.int16)
        assert x.view(lib.int8).tolist() == [0, 0, 1, 0, 2, 0, 3, 0]
        assert x.view(lib.int64).tolist() == [0x0003000200010000]
        x.view(lib.int8)[1] = 1
        assert x.tolist() == [256, 1, 2, 3] and x._version == 1
        assert not lib.zeros(2, requires_grad=True).view(lib.int32).requires_grad


def test_overlapping_as_strided_gradient():
    """Elements seen several times add up; elements that share memory share the gradient."""
    found = []
    for lib in (torch, flambeau):
        x = start(lib, (5,), requires_grad=True)
        x.as_strided((3, 2), (1, 1), 1).square().sum().backward()
        y = start(lib, (3,), requires_grad=True)
        z = y.expand(2, 3)
        (z.as_strided((2, 2), (1, 1)) * lib.tensor([[1., 2], [3, 4]])).sum().backward()
        found.append((x.grad.tolist(), y.grad.tolist()))
    assert found[0] == found[1]


def test_resize_and_set():
    for lib in (torch, flambeau):
        x = start(lib, (6,))
        tail = x.narrow(0, 2, 4)
        assert tail.resize_(2, 2).tolist() == [[2, 3], [4, 5]] and tail.storage_offset() == 2
        tail.resize_(10)
        assert tail[:4].tolist() == [2, 3, 4, 5] and x.untyped_storage().nbytes() == 48
        tail[0] = 9
        assert x.tolist() == [0, 1, 9, 3, 4, 5]
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            start(lib, (2,), requires_grad=True).resize_(3)
        y = lib.zeros(3)
        y.set_(x, 1, (2, 2), (2, 1))
        assert y.tolist() == [[1, 9], [3, 4]] and y.is_set_to(y) and y.storage_offset() == 1
        assert lib.zeros(2).resize_as_(lib.zeros(3, 2).t()).shape == (2, 3)
        array = np.zeros(2, np.float32)
        with pytest.raises(RuntimeError, match="not resizable"):
            lib.from_numpy(array).resize_(5)


def test_warnings_of_the_transposing_properties():
    for lib in (torch, flambeau):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert lib.zeros(2, 3).T.shape == (3, 2) and lib.zeros(1, 2, 3).mT.shape == (1, 3, 2)
        with pytest.raises(RuntimeError, match="tensor.H is only supported on matrices"):
            _ = lib.zeros(1, 2, 3).H
        with pytest.raises(RuntimeError, match="tensor.mT is only supported on matrices"):
            _ = lib.zeros(3).mT

"""What is written may share memory with what is read only where PyTorch lets it: a walk over every operation.

PyTorch writes while it reads, so it refuses operands that overlap the written tensor; Flambeau computes first and could
go on, but a program that is refused there is refused here. What PyTorch makes of an overlap that it does not look for
is not compared.
"""
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau as fb
from tests.torch.checks import call, flat, samples
from tests.torch.harness import OPS, Raised, function, tensors, to_fb, torch_function

# What PyTorch refuses in some cases because of how it computes: by a copy of the input, or by another operation.
BY_THE_WAY = "addmm addmv addbmm baddbmm nn.functional.normalize bernoulli inner take_along_dim".split()
OUT = [op for op in OPS if op.supports_out and torch.float32 in op.dtypes and op.name not in BY_THE_WAY]


def one_buffer(t, n):
    """`t`, laid anew one element into a buffer that also has room for `n` elements from its start."""
    buffer = torch.zeros(max(t.numel() + 1, n), dtype=t.dtype)
    buffer[1:t.numel() + 1] = t.detach().reshape(-1)
    return buffer[1:t.numel() + 1].view(t.shape), buffer


def refused(result):
    return isinstance(result, Raised) and "unsupported operation" in str(result)


@pytest.mark.parametrize("op", OUT, ids=lambda op: op.formatted_name)
def test_out(op):
    """`out=` that overlaps an input in part, and `out=` that is the input."""
    found = 0
    for sample in samples(op, torch.float32, "out"):
        want = call(torch_function(op), sample)
        if isinstance(want, Raised) or len(tensors(want)) != 1 or len(flat(want)) != 1:
            continue
        made = tensors(want)[0]
        at = next((t for t in tensors(sample) if t.dtype is made.dtype and t.numel() > 1), None)
        if at is None or made.numel() < 2:
            continue
        for where in ("in part", "the same"):
            if where == "the same" and at.shape != made.shape:
                continue
            found += 1
            moved, buffer = one_buffer(at, made.numel())
            out = buffer[:made.numel()].view(made.shape) if where == "in part" else moved
            theirs = with_(sample, at, moved)
            theirs.kwargs = {**theirs.kwargs, "out": out}
            mine = to_fb(theirs)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given, expected = call(function(op), mine), call(torch_function(op), theirs)
            assert refused(given) == refused(expected), f"{where}: {given!r:.300}, PyTorch: {expected!r:.100}"
    if not found:
        pytest.skip("no sample with an input of the result's dtype")


def with_(sample, old, new):
    """`sample` with the tensor `old` in it replaced."""
    def changed(x):
        if x is old:
            return new
        return type(x)([changed(y) for y in x]) if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size) else x
    return type(sample)(changed(sample.input), args=changed(tuple(sample.args)),
                        kwargs={k: changed(v) for k, v in sample.kwargs.items()})


# ---- in place --------------------------------------------------------------------------------------------------------

# name → calls with a float tensor x, positions i in it, and a mask of it: each reads the memory that it writes
INDEXED = {
    "index_add_": [lambda x, i, m: x.index_add_(0, i, x[:3]), lambda x, i, m: i.index_add_(0, i, i.clone()),
                   lambda x, i, m: i.index_add_(0, i.clone(), i)],
    "index_copy_": [lambda x, i, m: x.index_copy_(0, i, x[1:4]), lambda x, i, m: i.index_copy_(0, i.clone(), i)],
    "index_reduce_": [lambda x, i, m: x.index_reduce_(0, i, x[:3], "amax"),
                      lambda x, i, m: x.index_reduce_(0, index=i, source=x[3:], reduce="prod")],
    "index_fill_": [lambda x, i, m: i.index_fill_(0, i, 0), lambda x, i, m: x.index_fill_(0, i, x[0])],
    "put_": [lambda x, i, m: x.put_(i, x[:3]), lambda x, i, m: i.put_(i, i), lambda x, i, m: x.put_(i[0], x[0])],
    "index_put_": [lambda x, i, m: x.index_put_((i,), x[0]), lambda x, i, m: i.index_put_((i,), i.clone()),
                   lambda x, i, m: i.index_put_((i.clone(),), i), lambda x, i, m: x.index_put_((m,), x[0]),
                   lambda x, i, m: x.index_put_((m,), x[0], accumulate=True)],
    "[…] =": [lambda x, i, m: x.__setitem__(i, x[3:]), lambda x, i, m: x.__setitem__(i, x[i]),
              lambda x, i, m: x.__setitem__(m, x[0]), lambda x, i, m: x.__setitem__(slice(0, 3), x[1:4])],
    "scatter_": [lambda x, i, m: x.scatter_(0, i, x), lambda x, i, m: x.scatter_(0, i, x[1:4]),
                 lambda x, i, m: i.scatter_(0, i, 1), lambda x, i, m: i.scatter_add_(0, i, i.clone()),
                 lambda x, i, m: x.scatter_reduce_(0, i, x, "amin")],
    "masked_fill_": [lambda x, i, m: m[1:].masked_fill_(m[:-1], False), lambda x, i, m: m.masked_fill_(m, False),
                     lambda x, i, m: x.masked_fill_(m, x[0])],
    "arithmetic": [lambda x, i, m: x[1:].add_(x[:-1]), lambda x, i, m: x.add_(x),
                   lambda x, i, m: x[1:].pow_(x[:-1]), lambda x, i, m: x[1:].fmod_(x[:-1]),
                   lambda x, i, m: x[1:].div_(x[:-1], rounding_mode="floor"), lambda x, i, m: x[:3].div_(x[3:]),
                   lambda x, i, m: x[1:].clamp_(min=x[:-1])],
}


@pytest.mark.parametrize("name", INDEXED)
def test_in_place(name):
    for at, form in enumerate(INDEXED[name]):
        results = []
        for lib in (torch, fb):
            x, i = lib.arange(6.0), lib.tensor([2, 1, 0])
            m = lib.tensor([True, False, True, True, False, True])
            try:
                form(x, i, m)
                results.append((x.tolist(), i.tolist(), m.tolist()))
            except RuntimeError as error:
                results.append(str(error)[:40])
        assert results[0] == results[1], f"call {at}"


EXPANDED = {
    "index_put_": lambda x, i, m: x.index_put_((i,), x.new_ones(3)),
    "index_fill_": lambda x, i, m: x.index_fill_(0, i, 1.0),
    "masked_fill_": lambda x, i, m: x.masked_fill_(m, 1.0),
    "[i] =": lambda x, i, m: x.__setitem__(i, 1.0),
    "[mask] =": lambda x, i, m: x.__setitem__(m, x.new_ones(4)),
    "fill_": lambda x, i, m: x.fill_(1.0),
    "zero_": lambda x, i, m: x.zero_(),
    "index_add_": lambda x, i, m: x.index_add_(0, i, x.new_ones(3)),
    "index_copy_": lambda x, i, m: x.index_copy_(0, i, x.new_ones(3)),
    "put_": lambda x, i, m: x.put_(i, x.new_ones(3)),
    "scatter_": lambda x, i, m: x.scatter_(0, i, 1.0),
    "masked_scatter_": lambda x, i, m: x.masked_scatter_(m, x.new_ones(4)),
    "add_": lambda x, i, m: x.add_(1),
    "uniform_": lambda x, i, m: x.uniform_(),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expanded(name):
    """A write to an expanded tensor: refused, done with a warning, or done."""
    results = []
    for lib in (torch, fb):
        x, i = lib.zeros(1).expand(6), lib.tensor([2, 1, 0])
        m = lib.tensor([True, False, True, True, False, True])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                EXPANDED[name](x, i, m)
                results.append((x.tolist(), [str(w.message)[:50] for w in said]))
            except RuntimeError as error:
                results.append(str(error)[:40])
    assert results[0] == results[1]

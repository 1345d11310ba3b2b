"""`out=` of every dtype for every result, of none yet, and views: what is taken and what refused, the version, the
strides, and the memory around the view.

One sample of PyTorch's own for each operation and dtype, or two where one has several results; the values under other
samples are test_ops.py's.
"""
import itertools
import math
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau
from tests.torch.checks import COMPARE, VALUES, copy, everything, flat, garbage, samples, tensors
from tests.torch.harness import (
    Mismatch,
    Raised,
    assert_same,
    assert_same_error,
    assert_same_spec,
    attempt,
    function,
    to_fb,
    torch_function,
)

FROM = [torch.bool, torch.int64, torch.float16, torch.float32, torch.complex64]
INTO = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64]
OPERATIONS = {op.full_name: op for op, _ in everything("out")}

# (operation, dtype of the input): PyTorch takes or refuses what its other kernels do not
QUIRKS = {("logsumexp", torch.complex64), ("std", torch.float16), ("var", torch.float16),
          }


SEVERAL_WRITES = {"normal"}                          # the numbers, times the deviation, plus the mean
# An `out` that is resized lies in another way in PyTorch: columns first; as its kernel or a copy of the result has it
OTHER_LAYOUTS = {"linalg.lstsq", *(name for name in OPERATIONS if name.startswith("fft."))}


def call(f, sample):
    return attempt(f, sample.input, *sample.args, **sample.kwargs)


def given(op, dtype):
    """(a sample, its results) where these are tensors: the first with one, and the first with several."""
    seen = set()
    for sample in samples(op, dtype, "out") if dtype in op.dtypes else ():
        result = call(torch_function(op), copy(sample))
        several = isinstance(result, (tuple, list))
        if several not in seen and not isinstance(result, Raised) and len(tensors(result)) == len(flat(result)):
            seen.add(several)
            yield sample, flat(result)


def both(op, sample, outs):
    """What comes of the call in PyTorch and here, and our `out`; `outs` are the tensors that PyTorch writes."""
    theirs = copy(sample)
    theirs.kwargs = {**theirs.kwargs, "out": tuple(outs) if len(outs) > 1 else outs[0]}
    mine = to_fb(theirs)
    return call(torch_function(op), theirs), call(function(op), mine), flat(mine.kwargs["out"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_dtype(name):
    """Of one result after the other, the rest being as they should."""
    op, wrong = OPERATIONS[name], []
    for dtype in FROM:
        for sample, results in given(op, dtype) if (name, dtype) not in QUIRKS else ():
            for at, into in itertools.product(range(len(results)), INTO):
                outs = [garbage(t.shape, into if i == at else t.dtype) for i, t in enumerate(results)]
                want, got, mine = both(op, sample, outs)
                try:
                    if isinstance(want, Raised):
                        assert_same_error(got, want)
                    elif isinstance(got, Raised):
                        raise Mismatch(str(got))
                    elif op.name not in COMPARE and op.name not in VALUES:
                        for ours, out in zip(mine, outs, strict=True):
                            assert_same(ours, out, op, dtype, looser=100)
                except Mismatch as error:
                    wrong.append(f"{dtype}, result {at} into {into}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OPERATIONS)
def test_resized(name):
    op = OPERATIONS[name]
    for dtype in (torch.float32, torch.int64):
        for sample, results in given(op, dtype):
            for style in (lambda t: garbage((0,), t.dtype), lambda t: garbage((*t.shape, 2), t.dtype)):
                outs = [style(t) for t in results]
                want, got, mine = both(op, sample, outs)
                if isinstance(want, Raised) or isinstance(got, Raised):
                    assert isinstance(want, Raised) and isinstance(got, Raised), (dtype, str(got), str(want))
                    continue
                for ours, out, result in zip(mine, outs, results, strict=True):
                    if not result.numel():
                        continue                     # PyTorch's creating functions leave the size of an empty one
                    assert tuple(ours.shape) == tuple(out.shape)
                    assert ours._version == 1 or name in SEVERAL_WRITES
                    if name not in OTHER_LAYOUTS:
                        assert_same_spec(ours, out, True)


# ---- views: nothing around them is written ---------------------------------------------------------------------------

WRITES_OUTSIDE = {"matmul", "nn.functional.linear", "nn.functional.avg_pool3d", "nn.functional.gelu", "narrow_copy",
                  "linalg.lu", "fft.ihfft2", "fft.ihfftn"}          # PyTorch's own, or it leaves `out` as it is


def memory(count, dtype):
    return torch.full((count,), -77 if dtype.is_signed else 1, dtype=dtype)


def gaps(t):
    """A view with a row and a column more of memory in every dimension."""
    whole = memory(math.prod(n + 2 for n in t.shape), t.dtype)
    seen = whole.view([n + 2 for n in t.shape])
    for d, n in enumerate(t.shape):
        seen = seen.narrow(d, 1, n)
    return seen, whole


def every_other(t):
    whole = memory(math.prod(2 * n for n in t.shape), t.dtype)
    return whole.view([2 * n for n in t.shape])[(slice(None, None, 2),) * t.dim()], whole


def turned(t):
    whole = memory(t.numel() + 5, t.dtype)
    return whole[2:2 + t.numel()].view(t.shape[::-1]).permute(tuple(reversed(range(t.dim())))), whole


def as_many(t):
    """A view with gaps of another shape, with as many elements."""
    whole = memory(2 * t.numel() + 3, t.dtype)
    return whole.as_strided((t.numel(), 1), (2, 1), 1), whole


def too_many(t):
    whole = memory(2 * t.numel() + 9, t.dtype)
    return whole.as_strided((t.numel() + 3,), (2,), 2), whole


def nothing_yet(t):
    whole = memory(t.numel() + 9, t.dtype)
    return whole[4:4], whole


VIEWS = [gaps, every_other, turned, as_many, too_many, nothing_yet]


@pytest.mark.parametrize("name", [name for name in OPERATIONS if OPERATIONS[name].name not in WRITES_OUTSIDE])
def test_views(name):
    """The whole memory that `out=` is a view of is what it is in PyTorch, and so are shape and strides of the view."""
    op, wrong = OPERATIONS[name], []
    for sample, results in given(op, torch.float32 if torch.float32 in op.dtypes else torch.int64):
        for view in VIEWS:
            outs, wholes = zip(*[view(t) for t in results], strict=True)
            memo = {}
            theirs = copy(sample)
            theirs.kwargs = {**theirs.kwargs, "out": outs if len(outs) > 1 else outs[0]}
            mine, ours = to_fb(theirs, memo), [to_fb(whole, memo) for whole in wholes]
            want, got = call(torch_function(op), theirs), call(function(op), mine)
            try:
                if isinstance(want, Raised):
                    assert_same_error(got, want)
                    continue
                if isinstance(got, Raised):
                    raise Mismatch(str(got))
                for own, out in zip(flat(mine.kwargs["out"]), outs, strict=True):
                    assert tuple(own.shape) == tuple(out.shape), (tuple(own.shape), tuple(out.shape))
                    if name not in OTHER_LAYOUTS:
                        assert_same_spec(own, out, True)
                if op.name not in COMPARE and op.name not in VALUES and name not in OTHER_LAYOUTS:
                    for own, whole in zip(ours, wholes, strict=True):
                        assert_same(own, whole, op, torch.float32, looser=100)
            except (Mismatch, AssertionError) as error:
                wrong.append(f"{view.__name__}: {error}")
    assert not wrong, "\n".join(wrong)


CREATED = {"arange": lambda m, out: m.arange(4, out=out), "linspace": lambda m, out: m.linspace(0, 3, 4, out=out),
           "logspace": lambda m, out: m.logspace(0, 3, 4, out=out), "range": lambda m, out: m.range(0, 3, out=out),
           "zeros": lambda m, out: m.zeros(4, out=out), "full": lambda m, out: m.full((4,), 2.0, out=out),
           "ones": lambda m, out: m.ones(4, out=out), "eye": lambda m, out: m.eye(2, out=out),
           "randperm": lambda m, out: m.randperm(4, out=out), "rand": lambda m, out: m.rand(4, out=out),
           "randint": lambda m, out: m.randint(9, (4,), out=out),
           "none": lambda m, out: m.linspace(0, 1, 0, out=out), "arange none": lambda m, out: m.arange(0, out=out),
           "normal": lambda m, out: m.normal(0.0, m.ones(4), out=out)}


@pytest.mark.parametrize("shape", [(2, 2), (4,), (2, 3), (0,), (5,), (4, 1)], ids=str)
@pytest.mark.parametrize("name", CREATED)
def test_creating(name, shape):
    """What is made in a view that has as many elements, or not; and which warning says so."""
    found = []
    for m in (flambeau, torch):
        whole = m.full((40,), -7.0)
        out = whole.as_strided(shape, (8, 2)[-len(shape):], 1)
        m.manual_seed(1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = attempt(CREATED[name], m, out)
        assert result is out
        found.append((tuple(out.shape), tuple(out.stride()), [round(x, 4) for x in whole.tolist()],
                      [str(w.message).split(".")[0].split(" is ")[0] for w in said]))
    assert found[0] == found[1]


COPIES = [("split_copy", (2,)), ("split_with_sizes_copy", ([2, 2],)), ("unbind_copy", ())]


@pytest.mark.parametrize("name, args", COPIES)
def test_each_of_a_list(name, args):
    """The copies of several views are written into a list of tensors, and None is given back."""
    shape, count = ((2, 4), 2) if args else ((4,), 4)
    for size, dtype, number in ((shape, "float32", count), (shape, "int64", count), ((0,), "float32", count),
                                ((3, *shape), "float32", count), (shape, "float32", 1), (shape, "float32", count + 1)):
        found = []
        for lib in (flambeau, torch):
            outs = [lib.zeros(size, dtype=getattr(lib, dtype)) for _ in range(number)]
            given = lib.arange(16.0).reshape(4, 4)
            got = attempt(getattr(lib, name), given, *args, out=outs)
            found.append((type(got.error).__name__ if isinstance(got, Raised) else got, [o.tolist() for o in outs]))
        assert found[0] == found[1], (size, dtype, number)

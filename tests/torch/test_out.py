"""`out=` of every dtype for every result, and of none yet: what is taken and what refused, the version, the strides.

One sample of PyTorch's own for each operation and dtype, or two where one has several results; the values under other
samples are test_ops.py's.
"""
import itertools

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
LAPACK_LAYOUTS = {"linalg.cholesky", "linalg.inv", "linalg.solve_triangular", "linalg.eigh", "linalg.lstsq",
                  "linalg.qr"}                       # columns first in PyTorch's `out`


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
                    if name not in LAPACK_LAYOUTS:
                        assert_same_spec(ours, out, True)


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

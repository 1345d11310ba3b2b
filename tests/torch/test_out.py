"""`out=` of every dtype for every result, and of none yet: what is taken and what refused, the version, the strides.

One sample of PyTorch's own for each operation and dtype; the values under other samples are test_ops.py's.
"""
import pytest

torch = pytest.importorskip("torch")

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
          # into whole numbers it refuses through `out`, and sums by `dtype`
          *[(name, dtype) for name in ("nansum", "nanmean") for dtype in FROM]}


SEVERAL_WRITES = {"normal"}                          # the numbers, times the deviation, plus the mean
LAPACK_LAYOUTS = {"linalg.cholesky", "linalg.inv", "linalg.solve_triangular"}      # columns first in PyTorch's `out`


def call(f, sample):
    return attempt(f, sample.input, *sample.args, **sample.kwargs)


def given(op, dtype):
    """(a sample, its result) where that is one tensor."""
    found = samples(op, dtype, "out")[:1] if dtype in op.dtypes else []
    for sample in found:
        result = call(torch_function(op), copy(sample))
        if not isinstance(result, (Raised, tuple, list)) and len(tensors(result)) == len(flat(result)) == 1:
            yield sample, result


def both(op, sample, out):
    theirs = copy(sample)
    theirs.kwargs = {**theirs.kwargs, "out": out}
    mine = to_fb(theirs)
    return call(torch_function(op), theirs), call(function(op), mine), mine.kwargs["out"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_dtype(name):
    op, wrong = OPERATIONS[name], []
    for dtype in FROM:
        for sample, result in given(op, dtype) if (name, dtype) not in QUIRKS else ():
            for into in INTO:
                out = garbage(result.shape, into)
                want, got, mine = both(op, sample, out)
                try:
                    if isinstance(want, Raised):
                        assert_same_error(got, want)
                    elif isinstance(got, Raised):
                        raise Mismatch(str(got))
                    elif op.name not in COMPARE and op.name not in VALUES:
                        assert_same(mine, out, op, dtype, looser=100)
                except Mismatch as error:
                    wrong.append(f"{dtype} into {into}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OPERATIONS)
def test_resized(name):
    op = OPERATIONS[name]
    for dtype in (torch.float32, torch.int64):
        for sample, result in given(op, dtype):
            for out in (garbage((0,), result.dtype), garbage((*result.shape, 2), result.dtype)):
                want, got, mine = both(op, sample, out)
                if isinstance(want, Raised) or isinstance(got, Raised):
                    assert isinstance(want, Raised) and isinstance(got, Raised), (dtype, str(got), str(want))
                    continue
                if not result.numel():
                    continue                         # PyTorch's creating functions leave the size of an empty one
                assert tuple(mine.shape) == tuple(out.shape)
                assert mine._version == 1 or name in SEVERAL_WRITES
                if name not in LAPACK_LAYOUTS:
                    assert_same_spec(mine, out, True)

"""Empty inputs of dtypes that an operation does not have in PyTorch: never more lenient than PyTorch, and where both
answer, with the same kind of tensor. Stricter it may be: PyTorch's refusal is in a kernel, which is not always
reached.
"""
import pytest

torch = pytest.importorskip("torch")

from tests.torch.checks import OPS, call, copy, emptied, samples, tensors
from tests.torch.harness import Mismatch, Raised, assert_same, function, to_fb, torch_function

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64]
LENIENT = {"round.decimals_0"}                       # the same as without `decimals`, which integers have
LACKING = {op.full_name: op for op in OPS if not set(DTYPES) <= set(op.dtypes)}


def cases(op):
    """(dtype, a sample of PyTorch's with every tensor emptied, and of a dtype that the operation lacks)."""
    own = next((d for d in (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float64) if d in op.dtypes),
               None)
    for sample in samples(op, own, "out")[:2] if own is not None else ():
        for dtype in (d for d in DTYPES if d not in op.dtypes):
            def changed(t, dtype=dtype):
                return emptied(t.to(dtype) if t.dtype is own else t) if isinstance(t, torch.Tensor) else t
            laid = copy(sample).transform(changed)
            if any(not t.numel() for t in tensors(laid)):
                yield dtype, laid


@pytest.mark.parametrize("name", LACKING)
def test_empty(name):
    op, wrong = LACKING[name], []
    for dtype, sample in cases(op):
        mine = to_fb(sample)
        want, got = call(torch_function(op), sample), call(function(op), mine)
        if isinstance(got, Raised):
            theirs = type(want.error) if isinstance(want, Raised) else RuntimeError
            if not isinstance(got.error, (RuntimeError, IndexError, theirs)):
                wrong.append(f"{dtype}: raises {got}")
        elif isinstance(want, Raised):
            if name not in LENIENT:
                wrong.append(f"{dtype}: gives an answer, PyTorch raises {want}")
        else:
            try:
                assert_same(got, want, op, dtype)
            except Mismatch as error:
                wrong.append(f"{dtype}: {error}")
    assert not wrong, "\n".join(wrong)

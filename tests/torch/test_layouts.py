"""How results lie in memory: the strides of every operation, for inputs that lie in several ways, beside PyTorch.

`tests/torch/layouts.txt` lists what is known to lie otherwise; the line must go when that is mended.
"""
import itertools
import pathlib

import pytest

torch = pytest.importorskip("torch")

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like

from tests.torch.checks import call, callable_on, copy, drawn, transposed
from tests.torch.harness import Raised, Unsupported, describe, function, reading_only, tensors, to_fb, torch_function

SAMPLES = 3
LIST = pathlib.Path(__file__).parent / "layouts.txt"
KNOWN = {words[0]: words[1] for line in LIST.read_text().splitlines() if not line.startswith("#")
         for words in [line.split(None, 1)]}
CRASHES = {"lu_unpack"}                       # PyTorch's reads past the pivots of a transposed factorisation


def there(op):
    """Whether Flambeau has the operation, on strided tensors of the CPU."""
    try:
        return bool(op.dtypes) and not op.name.startswith(("sparse.", "masked.", "to_sparse")) and function(op)
    except AttributeError:
        return False


def channels_last(t):
    format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return t if format is None else t.contiguous(memory_format=format)


LAYOUTS = {"contiguous": torch.Tensor.contiguous, "transposed": transposed, "channels last": channels_last,
           "strided": noncontiguous_like, "columns first": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t}
OPERATIONS = {op.full_name: op for op in op_db if op.full_name not in CRASHES and there(op)}


def strides(t):
    """The steps of the dimensions that have several elements."""
    return [step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1]


def differences(op):
    dtype = next((d for d in (torch.float32, torch.int64, torch.complex64) if d in op.dtypes), None) or min(op.dtypes)
    for sample in drawn(itertools.islice(op.sample_inputs_func(op, "cpu", dtype, False), SAMPLES)):
        if not callable_on(op, sample) or any(t.layout is not torch.strided for t in tensors(sample)):
            continue
        for name, layout in LAYOUTS.items():
            def changed(t, layout=layout):
                return layout(t) if isinstance(t, torch.Tensor) and t.numel() and t.dim() else t
            laid = copy(sample).transform(changed)
            try:
                mine = to_fb(laid)
            except Unsupported:
                continue
            said = describe(laid)
            with reading_only():
                want, got = call(torch_function(op), laid), call(function(op), mine)
            if isinstance(want, Raised) or isinstance(got, Raised):
                continue
            for a, b in zip(tensors(got), tensors(want), strict=False):
                if tuple(a.shape) == tuple(b.shape) and b.numel() and strides(a) != strides(b):
                    yield f"{name}: {op.full_name}{said} gives {tuple(a.stride())}, PyTorch {tuple(b.stride())}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_strides(name):
    found = list(differences(OPERATIONS[name]))
    if name in KNOWN:
        assert found, f"lies as PyTorch's: take its line out of {LIST.name}"
    else:
        assert not found, "\n".join(found[:5])


def test_the_list_names_operations():
    assert not set(KNOWN) - set(OPERATIONS)

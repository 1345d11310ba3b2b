"""The reference executor: results fit their specs, own their memory, and leave their inputs alone."""
import pathlib
import re

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends import reference
from flambeau.backends.reference import blank, fit, fresh, owned, same_layout
from flambeau.base import dtypes
from flambeau.base.spec import spec
from flambeau.trace.recording.record import current

F32 = dtypes.float32


def test_blank_memory_has_the_layout():
    for shape, strides in (((2, 3), None), ((2, 3), (1, 2)), ((), None), ((0, 3), None), ((2, 3, 2), (2, 4, 1))):
        kind = spec(F32, shape, strides)
        array = blank(kind)
        assert array.shape == kind.shape and array.dtype == np.float32
        assert kind.numel == 0 or array.strides == kind.np_strides


def test_a_fitting_result_is_taken_as_it_is():
    made = np.ones((2, 3), np.float32)
    assert fit(made, spec(F32, (2, 3)), []) is made


@pytest.mark.parametrize("made", [
    np.arange(6.0).reshape(2, 3), np.arange(6, dtype=np.float32).reshape(3, 2).T,
    np.broadcast_to(np.float32(1), (2, 3)), np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]],
    ids="wide transposed expanded stepped".split())
def test_other_results_are_cast_laid_out_and_copied(made):
    for kind in (spec(F32, (2, 3)), spec(F32, (2, 3), (1, 2))):
        got = fit(made, kind, [made])
        assert got.dtype == np.float32 and got.strides == kind.np_strides and got.flags.writeable
        assert not np.shares_memory(got, made)
        np.testing.assert_array_equal(got, made.astype(np.float32))


def test_a_result_never_shares_memory_with_an_input():
    x = np.arange(6, dtype=np.float32)
    for made in (x, x.reshape(6), x[:], x.view()):
        got = fit(made, spec(F32, (6,)), [x])
        assert not np.shares_memory(got, x) and fresh(got, [x])
    assert not np.shares_memory(owned(x[::-1], [x]), x) and owned(x[::-1], [x]).flags.c_contiguous


def test_a_wrong_shape_is_an_internal_error_that_says_so():
    with pytest.raises(AssertionError, match=r"reference gave shape \(3,\), its spec says \(2,\)"):
        fit(np.ones(3), spec(F32, (2,)), [])


def test_dimensions_of_size_one_may_step_anywhere():
    assert same_layout(np.ones((1, 3), np.float32), spec(F32, (1, 3), (7, 1)))
    assert not same_layout(np.ones((2, 3), np.float32), spec(F32, (2, 3), (7, 1)))


def test_inputs_are_left_alone():
    """Also by operations that may write into their first array."""
    x, i = torch.arange(4.0), torch.tensor([1])
    results = [x.index_put((i,), torch.tensor(9.0)), x.index_fill(0, i, 8.0), x.scatter(0, i, 7.0),
               x.index_copy(0, i, torch.ones(1)), x.put(i, torch.ones(1))]
    assert [r[1].item() for r in results] == [9, 8, 7, 1, 1] and x.tolist() == [0, 1, 2, 3]


def test_halves_are_computed_wide_and_rounded_once():
    x = torch.tensor([1.0, 2.0 ** -11, 2.0 ** -11], dtype=torch.float16)
    assert x.sum().item() == 1 + 2.0 ** -10                       # step by step it would stay 1
    y = torch.full((4096,), 1.0, dtype=torch.bfloat16)
    assert y.sum().item() == 4096


def test_integers_wrap_and_nothing_warns(recwarn):
    x = torch.tensor([127], dtype=torch.int8)
    assert (x + 1).tolist() == [-128] and (x * x).tolist() == [1] and torch.tensor([0.0]).log().tolist() == [-np.inf]
    assert (torch.tensor([1.0]) / 0).tolist() == [np.inf] and torch.tensor([-1.0]).sqrt().isnan().all()
    current().run()
    assert not recwarn.list and np.geterr()["divide"] == "warn"


def test_modules_that_use_blas_are_known():
    """OpenBLAS ends a process in which it finds no memory, so room is looked for before its first call."""
    folder = pathlib.Path(torch.__file__).parent / "ops"
    using = {path.stem for path in folder.glob("*.py")
             if re.search(r"\b(xp|np)\.(matmul|linalg|einsum|tensordot|dot|inner|vdot|vecdot)| @ ", path.read_text())}
    assert using <= reference.BLAS_MODULES and "matmul" in using


def test_a_product_without_room_for_blas(monkeypatch):
    with torch.config.using(executor="reference"):
        monkeypatch.setattr(reference, "_blas", False)
        monkeypatch.setattr(reference.allocator, "has_room", lambda nbytes: False)
        x = torch.ones(3, 3)
        assert (x + x).sum().item() == 18
        product = x @ x
        with pytest.raises(torch.OutOfMemoryError, match=f"tried to allocate {reference.BLAS_BUFFER_BYTES} bytes"):
            product.tolist()
        monkeypatch.undo()
        assert product.sum().item() == 27

"""What the arguments of creating functions may be."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.base import dtypes
from flambeau.base.arguments import as_scalar, fits, fitting, number, options, shape_of, whole


def test_shapes_in_all_spellings():
    for given in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),), (np.int64(2), torch.tensor(3))):
        assert shape_of(given) == (2, 3)
    assert shape_of((), (2, 3)) == (2, 3) and shape_of(((),)) == ()
    for given in ((2.0,), (True,), ("2",), ()):
        with pytest.raises(TypeError):
            shape_of(given)
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        shape_of((-1,))


def test_numbers():
    assert whole(np.int32(3), "n") == 3 and whole(torch.tensor(3), "n") == 3
    assert number(np.float32(0.5), "x") == 0.5 and number(torch.tensor(2), "x") == 2
    with pytest.raises(TypeError, match="argument 'n' .* must be int, not float"):
        whole(2.5, "n")
    with pytest.raises(TypeError, match="must be Number, not list"):
        number([1], "x")


@pytest.mark.parametrize("value, dtype, fine", [
    (255, "uint8", True), (256, "uint8", False), (-1, "uint8", True), (128, "int8", False), (1.9, "int8", True),
    (float("nan"), "int64", False), (1e5, "float16", False), (float("inf"), "float16", True), (1e39, "float32", False),
    (1e39, "float64", True), (1j, "float32", False),
    (1 + 0j, "float32", True), (2**63, "int64", False), (5, "bool", True), (1e39 + 0j, "complex64", False)])
def test_what_fits(value, dtype, fine):
    d = dtypes.named(dtype)
    assert fits(value, d) == fine
    if fine:
        assert fitting(value, d) is value
    else:
        with pytest.raises(RuntimeError, match="without overflow"):
            fitting(value, d)


def test_scalars_convert_as_in_c():
    assert as_scalar(-1, dtypes.uint8) == 255 and as_scalar(2.9, dtypes.int64) == 2 and as_scalar(0.1, dtypes.bool)
    assert as_scalar(1 + 2j, dtypes.float32) == 1 and as_scalar(0.1, dtypes.float32).dtype == np.float32


def test_options():
    assert options(None, dtypes.float32, None, None) == (dtypes.float32, torch.device("cpu"))
    assert options(float, None, "meta", torch.strided) == (dtypes.float64, torch.device("meta"))
    for bad, kind in (({"dtype": "float32"}, TypeError), ({"layout": "strided"}, TypeError),
                      ({"pin_memory": True}, RuntimeError)):
        given = {"dtype": None, "fallback": dtypes.float32, "device": None, "layout": None, **bad}
        with pytest.raises(kind):
            options(**given)

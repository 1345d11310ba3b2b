"""Python's operators, of tensors of every kind of dtype, with tensors, numbers and what is neither, against PyTorch:
the dtype, the shape and the whole numbers of the result, or the type of the exception."""
import math
import operator
import warnings

import pytest

torch = pytest.importorskip("torch")

import flambeau

DTYPES = "bool uint8 int64 float16 bfloat16 float32 complex64".split()
SHAPES = [(), (4,), (0,)]
UNARY = {name: getattr(operator, name) for name in "neg pos invert abs index not_ truth".split()}
UNARY |= {"round": round, "float": float, "int": int, "complex": complex, "len": len, "list": list, "ceil": math.ceil,
          "floor": math.floor, "trunc": math.trunc, "round to tenths": lambda x: round(x, 1), "format": format}
BINARY = {name: getattr(operator, name) for name in
          ("add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge contains "
           "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift").split()}
OTHERS = [2, 2.5, True, 0, -1, 1j, None, "a", [1, 2, 0, 3], 2 ** 70, ...]


def tensor(lib, dtype, shape):
    return lib.tensor([1, 2, 0, 3] if shape == (4,) else 1, dtype=getattr(lib, dtype)).expand(shape).clone() \
        if shape != (0,) else lib.zeros(0, dtype=getattr(lib, dtype))


def outcome(lib, call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = call(lib)
        except RuntimeError:
            return "RuntimeError"                    # or NotImplementedError, which is one: of two reasons either
        except Exception as error:
            return type(error).__name__
    if not isinstance(made, lib.Tensor):
        return str(made)
    whole = not (made.dtype.is_floating_point or made.dtype.is_complex)
    return str(made.dtype), tuple(made.shape), whole and made.tolist()


def compare(cases):
    wrong = []
    for label, call in cases:
        want, got = outcome(torch, call), outcome(flambeau, call)
        if got != want and "complex32" not in str(want):
            wrong.append(f"{label}: gives {got}, PyTorch {want}")
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    compare([(f"{dtype} {shape}", lambda lib, d=dtype, s=shape: UNARY[name](tensor(lib, d, s)))
             for dtype in DTYPES for shape in SHAPES])


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    call, cases = BINARY[name], []
    for dtype in DTYPES:
        for shape in SHAPES:
            for other in OTHERS:
                if other == 1j and dtype == "float16":
                    continue                         # PyTorch's complex halves are not there
                cases.append((f"{dtype} {shape}, {other!r}",
                              lambda lib, d=dtype, s=shape, o=other: call(tensor(lib, d, s), o)))
                if not name.startswith("i"):
                    cases.append((f"{other!r}, {dtype} {shape}",
                                  lambda lib, d=dtype, s=shape, o=other: call(o, tensor(lib, d, s))))
            for second in DTYPES:
                if {dtype, second} == {"float16", "complex64"}:
                    continue
                for its in SHAPES[:2]:
                    cases.append((f"{dtype} {shape}, {second} {its}", lambda lib, d=dtype, s=shape, e=second, i=its:
                                  call(tensor(lib, d, s), tensor(lib, e, i))))
    compare(cases)

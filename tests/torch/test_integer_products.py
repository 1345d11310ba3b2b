"""Products of 8-bit integers, and with weights of 8 bits, beside PyTorch's."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau

SHAPES = [(1, 1, 1), (3, 4, 5), (17, 33, 19), (100, 1000, 70), (64, 64, 64), (0, 4, 5), (3, 0, 5)]


def drawn(*shape):
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape, np.int8)


def both(f, *arrays):
    return [f(lib, *[lib.tensor(x) for x in arrays]) for lib in (torch, flambeau)]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int_mm(shape, unsigned):
    M, K, N = shape
    a, b = drawn(M, K), drawn(K, N)
    theirs, ours = both(lambda lib, a, b: lib._int_mm(a, b), a.view(np.uint8) if unsigned else a, b)
    assert ours.dtype is flambeau.int32 and ours.tolist() == theirs.tolist()
    theirs, ours = both(lambda lib, a, b: lib._int_mm(b.mT, a.mT), a, b)
    assert ours.tolist() == theirs.tolist()


# PyTorch's kernel of 16 bits reads beyond a k that is no multiple of 32
@pytest.mark.parametrize("shape", [(1, 32, 32), (7, 96, 32), (64, 64, 64)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weight_int8pack_mm(shape, dtype):
    M, K, N = shape
    rng = np.random.default_rng(K)
    x, scales = rng.standard_normal((M, K)).astype(np.float32), rng.random(N).astype(np.float32)

    def f(lib, x, weight, scales):
        return lib._weight_int8pack_mm(x.to(getattr(lib, dtype)), weight, scales.to(getattr(lib, dtype)))

    theirs, ours = both(f, x, drawn(N, K), scales)
    ulp = {"float32": 1e-4, "bfloat16": 2.0 ** -7, "float16": 2.0 ** -10}[dtype]
    want = np.array(theirs.double().tolist())
    np.testing.assert_allclose(np.array(ours.double().tolist()), want, rtol=ulp, atol=ulp * abs(want).max() / 64)


INTS = {
    "one dimension": lambda lib, a, b: lib._int_mm(a[0], b),
    "a vector": lambda lib, a, b: lib._int_mm(a, b[0]),
    "inner sizes": lambda lib, a, b: lib._int_mm(a, a),
    "floats": lambda lib, a, b: lib._int_mm(a.float(), b),
    "floats on the right": lambda lib, a, b: lib._int_mm(a, b.float()),
    "a double": lambda lib, a, b: lib._weight_int8pack_mm(a.double(), b, b[0].double()),
    "a weight of floats": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), b.float(), b[0].float()),
    "a weight with gaps": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), b.mT, b[0].float()),
    "another inner size": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), b, b[:, 0].float()),
    "scales of another dtype": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), a, a[:, 0].bfloat16()),
    "scales in two dimensions": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), a, a.float()),
    "another number of scales": lambda lib, a, b: lib._weight_int8pack_mm(a.float(), a, b[0].float()),
    "columns": lambda lib, a, b: lib._weight_int8pack_mm(b.mT.float(), a, a[:, 0].float()),
}


@pytest.mark.parametrize("case", INTS)
def test_what_is_refused(case):
    raised = []
    for lib in (torch, flambeau):
        with pytest.raises((RuntimeError, IndexError)) as caught:
            INTS[case](lib, lib.tensor(drawn(3, 4)), lib.tensor(drawn(4, 5)))
        raised.append(caught)
    theirs, ours = raised
    assert ours.type is theirs.type
    assert str(ours.value).startswith(str(theirs.value).splitlines()[0])

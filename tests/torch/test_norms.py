"""Layers that normalise, given an input and parameters of every pair of dtypes: computed or refused as in PyTorch."""
import itertools

import pytest

import flambeau

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64", "float16", "bfloat16")
LAYERS = {
    "layer_norm": lambda f, x, w, b, m, v: f.layer_norm(x, (6,), w, b),
    "layer_norm, no bias": lambda f, x, w, b, m, v: f.layer_norm(x, (6,), w),
    "rms_norm": lambda f, x, w, b, m, v: f.rms_norm(x, (6,), w),
    "group_norm": lambda f, x, w, b, m, v: f.group_norm(x, 2, w, b),
    "batch_norm, training": lambda f, x, w, b, m, v: f.batch_norm(x, m, v, w, b, True),
    "batch_norm": lambda f, x, w, b, m, v: f.batch_norm(x, m, v, w, b, False),
    "batch_norm, statistics only": lambda f, x, w, b, m, v: f.batch_norm(x, m, v),
    "instance_norm": lambda f, x, w, b, m, v: f.instance_norm(x.reshape(2, 6, 2), None, None, w, b),
}


def outcome(library, layer, kinds):
    """The dtype of the result, or the exception's type and PyTorch's words in it."""
    dtypes = [getattr(library, kind) for kind in kinds]
    given = [library.ones(4, 6, dtype=dtypes[0]), *[library.ones(6, dtype=dtype) for dtype in dtypes[1:]]]
    try:
        return str(LAYERS[layer](library.nn.functional, *given).dtype)
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__, str(error).split("\n")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_dtypes_that_differ(layer):
    for input, weight, rest in itertools.product(DTYPES, DTYPES, DTYPES):
        kinds = (input, weight, weight, rest, rest)              # input; weight and bias; mean and variance
        assert outcome(flambeau, layer, kinds) == outcome(torch, layer, kinds), kinds

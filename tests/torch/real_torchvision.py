"""torchvision, imported over PyTorch for comparisons: `torchvision = real_torchvision()`.

Its wheels for some machines are made for PyTorch with CUDA, and their compiled half does not load beside one without.
Transforms, datasets and utils are Python; for those it is enough that the operators have been declared.
"""
import importlib
import sys

import pytest

from flambeau.vision import OPERATORS

TORCHVISION_VERSION = "0.28.0"


def real_torchvision():
    """The package; the test that asks for it is skipped where it is not installed."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL")
    try:
        found = importlib.import_module("torchvision")
    except ModuleNotFoundError:
        pytest.skip(f"torchvision is not installed: pip install --no-deps torchvision=={TORCHVISION_VERSION}")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for schema, _ in OPERATORS["_C"]:
            declared.define(schema.removeprefix("torchvision::"))
        real_torchvision.declared = declared                  # operators go with the object that declared them
        found = importlib.import_module("torchvision")
    if found.__version__.partition("+")[0] != TORCHVISION_VERSION:
        pytest.skip(f"torchvision {found.__version__} is installed, and comparisons are with {TORCHVISION_VERSION}")
    return found

"""torchvision itself, beside PyTorch: what our transforms are held against.

Its compiled half may be made for another build of PyTorch (for CUDA, where PyTorch is the CPU's) and is not needed: the
transforms are Python. Importing it registers shapes for two of the compiled operators, which therefore have to be
there by name.
"""
import importlib
import sys

import pytest


def real_torchvision():
    """The package, or a skip that says why there is none."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("PIL.Image")
    try:
        return pytest.importorskip("torchvision")
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
    made = torch.library.Library("torchvision", "DEF")
    for schema in ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
                   "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"):
        made.define(schema)
    real_torchvision.kept = made          # the operators go when it does
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]             # what the import that failed has left
    return importlib.import_module("torchvision")


def transforms():
    """torchvision.transforms.v2"""
    real_torchvision()
    from torchvision.transforms import v2
    return v2

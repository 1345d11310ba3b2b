"""Numbers, pictures and texts of a training for TensorBoard, written by the `tensorboard` package.

Without that package the import is a ModuleNotFoundError, as in PyTorch: programs ask that way whether it is there.
"""
try:
    import tensorboard
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: SummaryWriter writes through the package of TensorBoard; pip install "
                              "tensorboard", name=error.name) from None

from ...compat.missing import rest_of

del tensorboard

from .writer import FileWriter, SummaryWriter

__getattr__ = rest_of("torch.utils.tensorboard")

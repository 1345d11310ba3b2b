"""The names that classes go by: where a program finds them, `flambeau.Tensor`, not where they are written.

wandb, tensorboardX and others ask for `type(x).__module__`, and pickles name a class so. Under the name of PyTorch
(`install_as_torch`) it is PyTorch's: `torch.Tensor`. What asks whether a class is ours goes by `home`.
"""
_homes: dict = {}             # class → the module that it is written in


def publish(cls, module):
    """Let the class `cls` go by the name that it has in `module`."""
    _homes.setdefault(cls, cls.__module__)
    cls.__module__ = module


def published():
    """The classes that go by such a name."""
    return list(_homes)


def home(cls):
    """The module that the class `cls` is written in."""
    return _homes.get(cls) or getattr(cls, "__module__", None) or ""

"""The types that programs know PyTorch by have its names where Flambeau is `torch`.

Many packages ask a tensor where its type is from (`type(x).__module__.split(".")[0] == "torch"`: autoray, eagerpy,
wandb, tensorboardX), so that they need not import torch. `install_as_torch` calls `present`.
"""
_waiting: list = []               # (type, the module that PyTorch says it is of), until Flambeau is torch
PRESENTED: dict = {}              # type → the module that it is really of
_is_torch = False


def known_as(module, *kinds):
    """Let these types say that they are of `module`, once Flambeau is torch."""
    _waiting.extend((kind, module) for kind in kinds)
    if _is_torch:
        present()


def present():
    """Flambeau is torch from here on."""
    global _is_torch
    _is_torch = True
    while _waiting:
        kind, module = _waiting.pop()
        PRESENTED[kind] = kind.__module__
        kind.__module__ = module


def home_of(kind):
    """The module that a type is really of."""
    return PRESENTED.get(kind) or getattr(kind, "__module__", None) or ""

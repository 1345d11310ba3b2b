"""An operation as a function: what `torch.mul(x, y)` calls.

A part of the compiled core: see Note [One source, two speeds] in core.py.
"""
from typing import Any

door: Any = None              # that of op.py, which hangs it in here: see Note [The door] there


class CalledOp:
    """The part of an operation (op.py) that is called."""

    def __call__(op, *args, **kwargs):
        return door.call(op, args, kwargs)

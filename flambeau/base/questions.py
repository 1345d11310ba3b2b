"""Functions that answer yes or no, and notice when their name is taken for the answer.

`if torch.cuda.is_available:` takes the truth value of a function, which is always true. A Question is such a function:
it is called like one, and asked for its truth value it tells `watch`, and is true, as a function is. To every other
caller it looks like the function that it stands for: `inspect`, `help`, `pickle`, `copy` and `isinstance` see that one.
Only `type()` does not.
"""
import types

from .op import door


class Question:
    """A function that must be called to be answered."""

    __slots__ = ("function", "__weakref__")

    def __init__(self, function):
        object.__setattr__(self, "function", function)

    def __call__(self, *args, **kwargs):
        return _function(self)(*args, **kwargs)

    def __bool__(self):
        door.noticed("not_called", _function(self).__name__)
        return True

    def __getattribute__(self, name):
        if name == "__class__":
            return type(_function(self))
        if name in ("__reduce_ex__", "__reduce__", "__get__"):
            return object.__getattribute__(self, name)
        return getattr(_function(self), name)

    def __setattr__(self, name, value):
        setattr(_function(self), name, value)

    def __get__(self, instance, cls=None):
        return self if instance is None else Question(types.MethodType(_function(self), instance))

    def __eq__(self, other):
        return _function(self) == (_function(other) if type(other) is Question else other)

    def __hash__(self):
        return hash(_function(self))

    def __repr__(self):
        return repr(_function(self))

    def __reduce_ex__(self, protocol):
        function = _function(self)
        return function.__reduce_ex__(protocol) if isinstance(function, types.MethodType) else function.__qualname__


_function = Question.__dict__["function"].__get__      # of a Question: what it stands for

"""`torch.utils._contextlib`: a context that can also decorate. tensordict derives its own from it."""
from ..autograd.modes import _Switch

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager"]


class _DecoratorContextManager(_Switch):
    """A context that is also a decorator: what it decorates runs inside a `clone()` of it."""

    def __enter__(self):
        raise NotImplementedError

    def __exit__(self, exc_type, exc_value, traceback):
        raise NotImplementedError

    def clone(self):
        """Another one with the same settings; with none, if it is not said otherwise."""
        return self.__class__()

    def _again(self):
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same without settings, so that it decorates with and without parentheses."""

    def __new__(cls, orig_func=None):
        made = object.__new__(cls)
        return made if orig_func is None else made(orig_func)

"""`torch.overrides`: what a function needs to take part in `__torch_function__`."""
from .tensor.subclass import handle_torch_function, has_torch_function, is_tensor_like, nowrap, opted_out

__all__ = ["get_default_nowrap_functions", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
           "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "wrap_torch_function"]


def has_torch_function_unary(obj):
    """Whether `obj` overrides calls."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args):
    """Whether any of `args` overrides calls."""
    return has_torch_function(args)


def get_default_nowrap_functions():
    """The functions whose results keep their type on subclasses."""
    return nowrap


def wrap_torch_function(dispatcher):
    """A decorator: the function's arguments that `dispatcher` names may override its calls."""
    def decorate(func):
        import functools

        @functools.wraps(func)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def is_tensor_method_or_property(func):
    """Whether `func` belongs to the Tensor class."""
    from .tensor.tensor import Tensor
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func or func.__class__.__name__ == "method-wrapper"


_disabled_torch_function_impl = opted_out

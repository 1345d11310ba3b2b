"""For tests: tensors that are close, with a message that shows the worst place, and tensors to test with."""
from ..base.names import attribute_error

# name → the module here that it is in, which is imported when it is asked for
_MODULE_OF_NAME = {"assert_close": "_comparison", "assert_allclose": "_comparison", "make_tensor": "_creation",
                   "_comparison": "", "_creation": ""}
__all__ = ["assert_allclose", "assert_close", "make_tensor"]      # they come with their modules


def __getattr__(name):
    place = _MODULE_OF_NAME.get(name)
    if place is None:
        raise attribute_error("torch.testing", name, lambda: __all__)
    from importlib import import_module
    module = import_module(f".{place or name}", __name__)
    globals()[name] = found = getattr(module, name) if place else module
    return found


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]

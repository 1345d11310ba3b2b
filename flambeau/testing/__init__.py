"""For tests: tensors that are close, with a message that shows the worst place, and tensors to test with."""
from ..base.lazy import import_when_asked
from ..base.names import attribute_error

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
__getattr__ = import_when_asked(__name__, {
    "assert_allclose": "testing._comparison:assert_allclose", "assert_close": "testing._comparison:assert_close",
    "make_tensor": "testing._creation:make_tensor", "_comparison": "testing._comparison",
    "_creation": "testing._creation"}, lambda name: attribute_error("torch.testing", name, lambda: __all__))

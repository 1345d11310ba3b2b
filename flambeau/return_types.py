"""The named tuples that operations with several results return, as `torch.return_types` has them."""
from .tensor import forms as _forms
from .tensor.results import result_tuple as _result_tuple

_RESULT_TYPES = {op.returns.split()[0]: _result_tuple(op.returns) for op in _forms.declared.values() if op.returns}
globals().update(_RESULT_TYPES)
__all__ = list(_RESULT_TYPES)

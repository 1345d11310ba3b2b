"""The named tuples that operations with several results return, as `torch.return_types` has them."""
from .tensor import forms
from .tensor.results import result_tuple


def __getattr__(name):
    for op in forms.declared.values():
        if op.returns and op.returns.split()[0] == name:
            return result_tuple(op.returns)
    raise AttributeError(f"no operation returns a torch.return_types.{name}")

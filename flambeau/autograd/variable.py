"""`Variable`, from the time when a tensor with a gradient was one: every tensor is, and calling it gives one."""
from ..base.op import door

__all__ = ["Variable"]


class _VariableType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, door.tensor)

    def __call__(cls, data, requires_grad=False, volatile=None):
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_VariableType):
    """`Variable(tensor, requires_grad)` is the tensor's data as a leaf; any tensor is an instance."""

"""`torch.cuda.FloatTensor` and its like: PyTorch's older way to make a tensor of a dtype on the current device."""
from ..backends.cuda import driver
from ..base.once import cache
from ..tensor.create import LEGACY_TENSOR_TYPES, LegacyType, legacy
from ..tensor.tensor import Tensor


class CudaType(LegacyType):
    """The type of `torch.cuda.FloatTensor` and its like."""

    def __call__(cls, *args, **kwargs):
        driver.current()                              # refuses, where there is no device
        return legacy(cls.dtype, args, kwargs).cuda()

    def __instancecheck__(cls, thing):
        return isinstance(thing, Tensor) and thing.dtype is cls.dtype and thing.is_cuda

    def __repr__(cls):
        return f"<class 'torch.cuda.{cls.__name__}'>"


@cache
def tensor_type(name):
    """`torch.cuda.name`."""
    dtype = LEGACY_TENSOR_TYPES[name].dtype
    return CudaType(name, (), {"dtype": dtype, "is_cuda": True, "is_sparse": False, "__module__": "torch.cuda",
                               "__doc__": f"Makes tensors of {dtype!r} on the current CUDA device."})


globals().update({name: tensor_type(name) for name in (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor")})

"""Names in PyTorch's top module that are types of TorchScript or of quantised tensors: programs annotate with them and
ask `isinstance`. Nothing here is of such a type."""
from .missing import missing

NAMES = """AnyType BoolType DeviceObjType DictType FloatType Graph IntType ListType NoneType NumberType OptionalType
    ScriptObject StreamObjType StringType TensorType TupleType Type UnionType Value per_channel_affine
    per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric qscheme""".split()

globals().update({name: missing(f"torch.{name}") for name in NAMES})

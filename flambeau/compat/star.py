"""What `from torch import *` takes: `torch.__all__`, as PyTorch has it, of the names that are here."""
from types import ModuleType

import flambeau

# Functions that write into their argument are methods first; of these PyTorch has a function as well.
IN_PLACE = frozenset("""
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_
    ceil_ celu_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_
    expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_
    negative_ rad2deg_ reciprocal_ relu_ resize_as_ round_ rrelu_ rsqrt_ selu_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_
    tan_ tanh_ threshold_ trunc_ xlogy_ zero_
""".split())
# Names of PyTorch's that its star leaves out.
NOT_TAKEN = frozenset("""
    BFloat16Storage BFloat16Tensor ComplexDoubleStorage ComplexFloatStorage HalfStorage HalfTensor StorageBase
    TYPE_CHECKING
    broadcast_shapes channels_last channels_last_3d compiled_with_cxx11_abi contiguous_format from_dlpack
    get_printoptions grouped_mm jagged legacy_contiguous_format pca_lowrank
    per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric
    preserve_format set_default_dtype
    set_grad_enabled set_vital sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr strided svd_lowrank unique
""".split())
FLAMBEAUS_OWN = frozenset("doctor expect install_as_torch ops report".split())


def taken():
    """The names, in order."""
    places = flambeau._IMPORTED_WHEN_ASKED
    for name in dir(flambeau):
        is_module = ":" not in places[name] if name in places else isinstance(getattr(flambeau, name), ModuleType)
        if not (name.startswith("_") or is_module or name in NOT_TAKEN or name in FLAMBEAUS_OWN
                or name.endswith("_") and name not in IN_PLACE):
            yield name


names = list(taken())

"""Autocast at the door: in which dtype an operation computes inside a region.

Each operation listed here converts its floating arguments first, and then runs as it would outside: in the region's
dtype, in float32, or in the widest of its arguments' dtypes. All others run in whatever dtypes reach them. The lists
are those of PyTorch's CPU; float64, integers and tensors on other devices are left alone. So are in-place forms and
`out=`, what an operation does inside itself, and gradients, which are of the dtype that their operation ran in.

What is on is thread-local, in `modes.autocast`; `overrides.regions` is zero while it is on in no thread, so that a
program without autocast pays for one look at an integer.
"""
import threading

from ..autograd.modes import modes
from ..base import dtypes
from ..base.spec import CPU
from .overrides import count_region

# By public name; a name with an underscore is a part of another operation.
LOWER_PRECISION_NAMES = """
    mm bmm matmul addmm addbmm baddbmm linalg.vecdot nn.functional.linear nn.functional.prelu
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    nn.functional.scaled_dot_product_attention _attend
""".split()
FLOAT32_NAMES = """
    prod trace polar view_as_complex cdist quantile nanquantile grid_sampler grid_sampler_2d grid_sampler_3d
    _reflection_pad1d _reflection_pad2d _replication_pad1d _replication_pad2d _replication_pad3d
    nn.functional.avg_pool3d nn.functional.adaptive_avg_pool3d max_pool3d nn.functional.adaptive_max_pool3d
    nn.functional.adaptive_max_pool3d_with_indices
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.fractional_max_pool2d_with_indices nn.functional.fractional_max_pool3d_with_indices
    nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d
    nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
    nn.functional.cosine_embedding_loss nn.functional.cross_entropy nn.functional.ctc_loss
    nn.functional.hinge_embedding_loss nn.functional.huber_loss nn.functional.kl_div nn.functional.l1_loss
    nn.functional.margin_ranking_loss nn.functional.mse_loss nn.functional.multi_margin_loss
    nn.functional.multilabel_margin_loss nn.functional.nll_loss nn.functional.poisson_nll_loss
    nn.functional.smooth_l1_loss nn.functional.soft_margin_loss nn.functional.triplet_margin_loss
    cholesky cholesky_inverse cholesky_solve inverse lu_solve pinverse qr svd triangular_solve
    linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.inv
    linalg.inv_ex linalg.lstsq linalg.matrix_rank linalg.qr linalg.solve linalg.svd linalg.svdvals linalg.tensorinv
    linalg.tensorsolve linalg.householder_product geqrf orgqr ormqr
    fft.fft fft.ifft fft.fft2 fft.ifft2 fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfft2 fft.irfft2 fft.rfftn fft.irfftn
    fft.hfft fft.ihfft stft
""".split()
WIDEST_DTYPE_NAMES = "cat stack index_copy".split()
UNCAST_NAMES = ["_trilinear"]  # a kernel of PyTorch's own; here it is made of products, which are not to be cast

_CAST_OF_NAME = {**dict.fromkeys(LOWER_PRECISION_NAMES, "lower"), **dict.fromkeys(FLOAT32_NAMES, "float32"),
                 **dict.fromkeys(WIDEST_DTYPE_NAMES, "widest"), **dict.fromkeys(UNCAST_NAMES, "as is")}
cast_of_operation: dict = {}  # operation → "lower", "float32", "widest" or "as is"


def note(op, names):
    """Remember what autocast does with `op`, if one of its names is in a list."""
    for name in names:
        if name in _CAST_OF_NAME:
            cast_of_operation[op] = _CAST_OF_NAME[name]


class _Region(threading.local):
    """What autocast is set to in this thread: by type of device where it is not the default."""

    def __init__(self):
        self.enabled, self.dtype, self.cache_enabled = {}, {}, True
        self.nesting, self.outer = 0, []          # how many regions are open, and what held outside of each
        self.counted = False                      # whether this thread counts in `overrides.regions`
        self.casts = {}       # (id of a parameter, its gradient wanted or not) → (parameter, its version, its cast)


region = _Region()


class aside:
    """Nothing is cast inside."""

    def __enter__(self):
        self.before, modes.autocast = modes.autocast, None

    def __exit__(self, *exc):
        modes.autocast = self.before


class resumed:
    """Autocast as it was where `modes.autocast` was `dtype`: for what is run once more later."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before, modes.autocast = modes.autocast, self.dtype
        region.nesting += 1
        count_region(self.dtype is not None)

    def __exit__(self, *exc):
        count_region(-(self.dtype is not None))
        modes.autocast = self.before
        region.nesting -= 1
        if not region.nesting:
            clear_cache()


def arguments(kind, args, kwargs):
    """The arguments of a call as autocast hands them on."""
    if kind == "as is":
        return args, kwargs
    if kind == "lower":
        target = modes.autocast
    elif kind == "float32":
        target = dtypes.float32
    else:
        target = _widest(args, kwargs)
    args = tuple([_cast(a, target) for a in args])
    return args, {name: _cast(a, target) for name, a in kwargs.items()} if kwargs else kwargs


def _cast(held, target):
    """`held` with its tensors in the dtype `target`, where autocast may touch them."""
    if hasattr(held, "_spec"):
        return _cast_one(held, target) if eligible(held._spec) else held
    if held.__class__ in (tuple, list):
        return held.__class__([_cast(part, target) for part in held])
    return held


def eligible(spec):
    """Whether autocast casts tensors like this."""
    return spec.device is CPU and spec.dtype.is_floating_point and spec.dtype is not dtypes.float64


def _cast_one(tensor, target):
    """`tensor` in the dtype `target`. That of a leaf that wants a gradient is made once in a region."""
    if tensor._spec.dtype is target:
        return tensor
    if target is dtypes.float32 or not region.cache_enabled or not tensor._requires_grad or tensor._base is not None \
            or tensor._spec.dtype is not dtypes.float32:
        return tensor.to(target)
    key = id(tensor), modes.grad
    found = region.casts.get(key)
    version = tensor._storage.version
    if found is None or found[1] != version or found[2]._spec.dtype is not target:
        found = region.casts[key] = tensor, version, tensor.to(target)
    return found[2]


def _widest(args, kwargs):
    """float32 if a tensor is of it, else the region's dtype, which all others then have to have."""
    found = modes.autocast
    for spec in _specs((*args, *kwargs.values())):
        if eligible(spec) and spec.dtype is not found:
            if spec.dtype is not dtypes.float32 and found is not dtypes.float32:
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize: a tensor of "
                                   f"{spec.dtype} in an autocast region of {found}. Use one of them, or float32.")
            found = dtypes.float32
    return found


def _specs(things):
    for held in things:
        if hasattr(held, "_spec"):
            yield held._spec
        elif held.__class__ in (tuple, list):
            yield from _specs(held)


def clear_cache():
    """Forget the casts of parameters."""
    region.casts.clear()


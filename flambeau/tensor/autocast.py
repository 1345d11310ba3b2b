"""Autocast at the door: in which dtype an operation computes inside a region.

Each operation listed here converts its floating arguments first, and then runs as it would outside: in the region's
dtype, in float32, or in the widest of its arguments' dtypes. All others run in whatever dtypes reach them. The lists
are PyTorch's, one for the CPU and one for CUDA; float64, integers and tensors on other devices are left alone. So are
in-place forms and `out=`, what an operation does inside itself, and gradients, which are of the dtype that their
operation ran in.

What is on is thread-local: `modes.autocast` is None, or a Casting. `overrides.regions` is zero while it is on in no
thread, so that a program without autocast pays for one look at an integer.

Note [Inside composites]: CUDA's lists name functions that many of our operations are made of (exp, sum, pow), where
PyTorch has a kernel of its own that is not cast. So on CUDA nothing is cast inside an operation; but for those that
PyTorch makes of others too, `SEE_THROUGH_NAMES`.
"""
import threading
from typing import NamedTuple

from ..autograd.modes import modes
from ..base import dtypes
from ..trace.record import _local
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


LOWER_PRECISION_CUDA_NAMES = """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d nn.functional.prelu
    mm mv bmm matmul addmm addmv addr addbmm baddbmm einsum chain_matmul linalg.multi_dot linalg.vecdot
    nn.functional.linear nn.functional.scaled_dot_product_attention
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell lstm gru rnn_tanh rnn_relu
""".split()
FLOAT32_CUDA_NAMES = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow square nn.functional.softplus
    nn.functional.layer_norm nn.functional.rms_norm nn.functional.group_norm nn.functional.cosine_similarity
    nn.functional.pairwise_distance nn.functional.poisson_nll_loss nn.functional.cosine_embedding_loss
    nn.functional.nll_loss nn.functional.hinge_embedding_loss nn.functional.kl_div nn.functional.l1_loss
    nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.mse_loss nn.functional.margin_ranking_loss
    nn.functional.multilabel_margin_loss nn.functional.soft_margin_loss nn.functional.triplet_margin_loss
    nn.functional.multi_margin_loss nn.functional.binary_cross_entropy_with_logits nn.functional.cross_entropy
    dist pdist cdist renorm logsumexp nn.functional.interpolate
""".split()
# In float32, unless the call says a dtype.
FLOAT32_RESULT_CUDA_NAMES = """
    prod softmax nn.functional.softmax log_softmax nn.functional.log_softmax nn.functional.softmin cumprod cumsum
    linalg.vector_norm linalg.matrix_norm linalg.norm norm sum
""".split()
WIDEST_DTYPE_CUDA_NAMES = """
    addcdiv addcmul atan2 nn.functional.bilinear cross linalg.cross dot vdot grid_sampler nn.functional.grid_sample
    index_put tensordot scatter_add
""".split()
REFUSED_CUDA_NAMES = ["nn.functional.binary_cross_entropy"]
SEE_THROUGH_NAMES = """
    nn.functional.multi_head_attention_forward nn.functional.normalize nn.functional.gumbel_softmax
    nn.functional.local_response_norm nn.functional.lp_pool1d nn.functional.lp_pool2d nn.functional.lp_pool3d
    nn.functional.triplet_margin_with_distance_loss nn.functional.linear_cross_entropy
    nn.functional.gaussian_nll_loss nn.functional.multilabel_soft_margin_loss
    nn.functional.upsample nn.functional.upsample_bilinear nn.functional.upsample_nearest
    cov corrcoef inner matrix_power linalg.matrix_power
""".split()

_CASTS = {
    "cpu": {**dict.fromkeys(LOWER_PRECISION_NAMES, "lower"), **dict.fromkeys(FLOAT32_NAMES, "float32"),
            **dict.fromkeys(WIDEST_DTYPE_NAMES, "widest"), **dict.fromkeys(UNCAST_NAMES, "as is")},
    "cuda": {**dict.fromkeys(LOWER_PRECISION_CUDA_NAMES, "lower"), **dict.fromkeys(FLOAT32_CUDA_NAMES, "float32"),
             **dict.fromkeys(FLOAT32_RESULT_CUDA_NAMES, "float32 result"),
             **dict.fromkeys(WIDEST_DTYPE_CUDA_NAMES, "widest"), **dict.fromkeys(REFUSED_CUDA_NAMES, "refused"),
             **dict.fromkeys(SEE_THROUGH_NAMES, "see through")}}
# operation → {type of device: "lower", "float32", "float32 result", "widest", "as is", "refused" or "see through"}
cast_of_operation: dict = {}


def note(op, names):
    """Remember what autocast does with `op`, if one of its names is in a list."""
    for device_type, casts in _CASTS.items():
        for name in names:
            if name in casts:
                cast_of_operation.setdefault(op, {})[device_type] = casts[name]


def is_cast(op, spec):
    """Whether autocast has a say in a call of `op` with a tensor of `spec`, so that the call has to ask."""
    return op in cast_of_operation and spec.device.type in cast_of_operation[op]


class Casting(NamedTuple):
    """The dtypes that regions of the CPU and of CUDA compute in; None where there is no region."""

    cpu: object = None
    cuda: object = None


class _Region(threading.local):
    """What autocast is set to in this thread: by type of device where it is not the default."""

    def __init__(self):
        self.enabled, self.dtype, self.cache_enabled = {}, {}, True
        self.nesting, self.outer = 0, []          # how many regions are open, and what held outside of each
        self.counted = False                      # whether this thread counts in `overrides.regions`
        self.site = None                          # the line whose calls are made where the region began, in a backward
        self.seen_through = None                  # the operation inside of which is cast; see Note [Inside composites]
        self.casts = {}       # (id of a parameter, its gradient wanted or not) → (parameter, its version, its cast)


region = _Region()


class aside:
    """Nothing is cast inside."""

    def __enter__(self):
        self.before, modes.autocast = modes.autocast, None

    def __exit__(self, *exc):
        modes.autocast = self.before


class see_through:
    """What the operation `op` is made of is cast, as if its caller had called that."""

    def __init__(self, op):
        self.op = op

    def __enter__(self):
        self.before, region.seen_through = region.seen_through, self.op

    def __exit__(self, *exc):
        region.seen_through = self.before


class resumed:
    """Autocast as it was where `modes.autocast` was `casting`: for what is run once more later."""

    def __init__(self, casting):
        self.casting = casting

    def __enter__(self):
        self.before, modes.autocast = modes.autocast, self.casting
        self.site, region.site = region.site, _local.trace.site
        region.nesting += 1
        count_region(self.casting is not None)

    def __exit__(self, *exc):
        count_region(-(self.casting is not None))
        modes.autocast, region.site = self.before, self.site
        region.nesting -= 1
        if not region.nesting:
            clear_cache()


def handled(op, args, kwargs):
    """(a context, args, kwargs) to make a call in and with; None where autocast leaves it as it is."""
    casting = modes.autocast
    kinds = cast_of_operation.get(op)
    if casting.cuda is not None and (kinds is not None or region.seen_through is not None and op.composite) and any(
            spec.device.type == "cuda" for spec in _specs((*args, *kwargs.values()))):
        return _handled_on_cuda(op, kinds.get("cuda") if kinds else None, args, kwargs)
    if casting.cpu is None or kinds is None or "cpu" not in kinds:
        return None
    return aside(), *_arguments(kinds["cpu"], args, kwargs, "cpu")


def _handled_on_cuda(op, kind, args, kwargs):
    through = region.seen_through
    if _local.trace.site is not region.site and through is None or op is through:      # see Note [Inside composites]
        return None
    if kind == "refused":
        raise RuntimeError("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Many "
                           "models use a sigmoid layer right before the binary cross entropy layer. In this case, "
                           "combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits or "
                           "torch.nn.BCEWithLogitsLoss. binary_cross_entropy_with_logits and BCEWithLogits are safe to "
                           "autocast.")
    if kind == "see through":
        return see_through(op), args, kwargs
    if kind is None:
        return (aside(), args, kwargs) if op.composite else None
    return aside(), *_arguments(kind, args, kwargs, "cuda")


def _arguments(kind, args, kwargs, device_type):
    """The arguments of a call as autocast hands them on."""
    if kind == "as is":
        return args, kwargs
    if kind == "lower":
        target = getattr(modes.autocast, device_type)
    elif kind == "widest":
        target = _widest(args, kwargs, device_type)
    elif kind == "float32 result" and any(a.__class__ is dtypes.dtype for a in (*args, *kwargs.values())):
        return args, kwargs
    else:
        target = dtypes.float32
    args = tuple([_cast(a, target, device_type) for a in args])
    return args, {name: _cast(a, target, device_type) for name, a in kwargs.items()} if kwargs else kwargs


def _cast(held, target, device_type):
    """`held` with its tensors in the dtype `target`, where autocast may touch them."""
    if hasattr(held, "_spec"):
        return _cast_one(held, target) if eligible(held._spec, device_type) else held
    if held.__class__ in (tuple, list):
        return held.__class__([_cast(part, target, device_type) for part in held])
    return held


def eligible(spec, device_type):
    """Whether the autocast of a type of device casts tensors like this."""
    return spec.device.type == device_type and spec.dtype.is_floating_point and spec.dtype is not dtypes.float64


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


def _widest(args, kwargs, device_type):
    """float32 if a tensor is of it, else the region's dtype, which all others then have to have."""
    found = getattr(modes.autocast, device_type)
    for spec in _specs((*args, *kwargs.values())):
        if eligible(spec, device_type) and spec.dtype is not found:
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


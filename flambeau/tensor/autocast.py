"""Autocast at the door: in which dtype an operation computes inside a region.

Each operation listed here converts its floating arguments first, and then runs as it would outside: in the region's
dtype, in float32, or in the widest of its arguments' dtypes; on CUDA, some are told to give float32 instead. All others
run in whatever dtypes reach them. The lists are PyTorch's, those of the CPU and those of CUDA, which stand for every
device besides the CPU; a call goes by the list of the device that its tensors are on. Float64, integers and tensors on
other devices are left alone. So are in-place forms and `out=`, what an operation does inside itself, and gradients,
which are of the dtype that their operation ran in.

What is on is thread-local, in `modes.autocast`: {type of device: dtype}, or None. `overrides.regions` is zero while it
is on in no thread, so that a program without autocast pays for one look at an integer.

Note [Inside composites]: CUDA's lists name functions that many of our operations are made of (exp, sum, pow), where
PyTorch has a kernel of its own that is not cast. So there nothing is cast inside an operation; but for those that
PyTorch makes of others too, CUDA_SEE_THROUGH_NAMES.
"""
import threading

from ..autograd.modes import modes
from ..base import dtypes
from ..base.op import door
from ..trace.recording.record import _local
from . import overrides
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


# The same on CUDA.
CUDA_LOWER_PRECISION_NAMES = """
    mm bmm mv matmul addmm addmv addr addbmm baddbmm chain_matmul einsum linalg.vecdot linalg.multi_dot
    nn.functional.linear nn.functional.prelu conv_tbc
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell lstm gru rnn_tanh rnn_relu
    nn.functional.scaled_dot_product_attention _attend
""".split()
CUDA_FLOAT32_NAMES = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal _rdiv rsqrt sinh tan pow square
    nn.functional.softplus nn.functional.layer_norm native_layer_norm nn.functional.rms_norm nn.functional.group_norm
    frobenius_norm nuclear_norm nn.functional.cosine_similarity nn.functional.pairwise_distance
    nn.functional.interpolate
    nn.functional.poisson_nll_loss nn.functional.cosine_embedding_loss nn.functional.nll_loss
    nn.functional.cross_entropy nn.functional.hinge_embedding_loss nn.functional.kl_div nn.functional.l1_loss
    nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.mse_loss nn.functional.margin_ranking_loss
    nn.functional.multilabel_margin_loss nn.functional.soft_margin_loss nn.functional.triplet_margin_loss
    nn.functional.multi_margin_loss nn.functional.binary_cross_entropy_with_logits
    dist pdist nn.functional.pdist cdist renorm logsumexp
""".split()
CUDA_FLOAT32_RESULT_NAMES = """
    prod softmax log_softmax nn.functional.softmax nn.functional.log_softmax nn.functional.softmin cumprod cumsum sum
    norm linalg.vector_norm linalg.matrix_norm linalg.norm
""".split()
CUDA_WIDEST_DTYPE_NAMES = """
    addcdiv addcmul atan2 nn.functional.bilinear cross dot vdot grid_sampler grid_sampler_2d grid_sampler_3d index_put
    tensordot scatter_add
""".split()
CUDA_REFUSED_NAMES = ["nn.functional.binary_cross_entropy"]
CUDA_SEE_THROUGH_NAMES = """
    nn.functional.multi_head_attention_forward nn.functional.normalize nn.functional.gumbel_softmax
    nn.functional.local_response_norm nn.functional.lp_pool1d nn.functional.lp_pool2d nn.functional.lp_pool3d
    nn.functional.triplet_margin_with_distance_loss nn.functional.linear_cross_entropy
    nn.functional.gaussian_nll_loss nn.functional.multilabel_soft_margin_loss
    nn.functional.upsample nn.functional.upsample_bilinear nn.functional.upsample_nearest
    cov corrcoef inner matrix_power linalg.matrix_power
""".split()

_CAST_OF_NAME = {
    "cpu": {**dict.fromkeys(LOWER_PRECISION_NAMES, "lower"), **dict.fromkeys(FLOAT32_NAMES, "float32"),
            **dict.fromkeys(WIDEST_DTYPE_NAMES, "widest"), **dict.fromkeys(UNCAST_NAMES, "as is")},
    "accelerator": {
        **dict.fromkeys(CUDA_LOWER_PRECISION_NAMES, "lower"), **dict.fromkeys(CUDA_FLOAT32_NAMES, "float32"),
        **dict.fromkeys(CUDA_FLOAT32_RESULT_NAMES, "float32 result"),
        **dict.fromkeys(CUDA_WIDEST_DTYPE_NAMES, "widest"), **dict.fromkeys(UNCAST_NAMES, "as is"),
        **dict.fromkeys(CUDA_REFUSED_NAMES, "refused"), **dict.fromkeys(CUDA_SEE_THROUGH_NAMES, "see through")}}
# whose list → operation → "lower", "float32", "float32 result", "widest", "as is", "refused" or "see through"
casts_on: dict = {whose: {} for whose in _CAST_OF_NAME}
cast_of_operation, cast_on_accelerators = casts_on["cpu"], casts_on["accelerator"]
listed: set = set()           # operations that stand in the lists of some device


def note(op, names):
    """Remember what autocast does with `op`, if one of its names is in a list."""
    for whose, casts in _CAST_OF_NAME.items():
        for name in names:
            if name in casts:
                casts_on[whose][op] = casts[name]
                listed.add(op)


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
    """Autocast as it was where `modes.autocast` was `dtype`: for what is run once more later."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before, modes.autocast = modes.autocast, self.dtype
        self.site, region.site = region.site, _local.trace.site
        region.nesting += 1
        count_region(self.dtype is not None)

    def __exit__(self, *exc):
        count_region(-(self.dtype is not None))
        modes.autocast, region.site = self.before, self.site
        region.nesting -= 1
        if not region.nesting:
            clear_cache()


def handled(op, args, kwargs):
    """(a context, args, kwargs) to make a call in and with; None where autocast takes no part in it."""
    if op not in listed and not (region.seen_through is not None and op.composite):
        return None
    device = _device_of(args, kwargs)
    if device is None:
        return None
    cast = (cast_of_operation if device == "cpu" else cast_on_accelerators).get(op)
    if device != "cpu":                                   # see Note [Inside composites]
        if _local.trace.site is not region.site and region.seen_through is None or op is region.seen_through:
            return None
        if cast is None and op.composite and region.seen_through is not None:
            cast = "as is"
        if cast == "see through":
            return see_through(op), args, kwargs
    return None if cast is None else (aside(), *_arguments(cast, args, kwargs, device))


def _arguments(cast, args, kwargs, device):
    """The arguments of a call as autocast hands them on."""
    if cast == "as is":
        return args, kwargs
    if cast == "refused":
        raise RuntimeError(REFUSAL)
    if cast == "float32 result":
        first = args[0] if args else kwargs.get("input", kwargs.get("self"))
        asked = kwargs.get("dtype") is not None or any(isinstance(a, dtypes.dtype) for a in args)
        if asked or not hasattr(first, "_spec") or not eligible(first._spec, device):
            return args, kwargs
        return args, {**kwargs, "dtype": dtypes.float32}
    if cast == "lower":
        target = modes.autocast[device]
    elif cast == "float32":
        target = dtypes.float32
    else:
        target = _widest(args, kwargs, device)
    args = tuple([_cast(a, target, device) for a in args])
    return args, {name: _cast(a, target, device) for name, a in kwargs.items()} if kwargs else kwargs


REFUSAL = ("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a "
           "sigmoid layer right before the binary cross entropy layer.\nIn this case, combine the two layers using "
           "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  "
           "binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast.")


def _device_of(args, kwargs):
    """The type of device whose list a call goes by: of the tensors in it, where autocast is on for it; others before
    the CPU, whose single numbers join tensors there."""
    on, found = modes.autocast, None
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if hasattr(arg, "_spec"):
            device_type = arg._spec.device.type
        elif arg.__class__ in (tuple, list):
            device_type = _device_of(arg, {})
        else:
            continue
        if device_type in on:
            if device_type != "cpu":
                return device_type
            found = device_type
    return found


def _cast(value, target, device):
    """`value` with its tensors in the dtype `target`, where autocast may touch them."""
    if hasattr(value, "_spec"):
        return _cast_one(value, target) if eligible(value._spec, device) else value
    if value.__class__ in (tuple, list):
        return value.__class__([_cast(part, target, device) for part in value])
    return value


def eligible(spec, device):
    """Whether autocast casts tensors like this, in a call that goes by the list of a type of `device`."""
    return spec.device.type == device and spec.dtype.is_floating_point and spec.dtype is not dtypes.float64


def _cast_one(tensor, target):
    """`tensor` in the dtype `target`. That of a leaf that wants a gradient is made once in a region."""
    if tensor._spec.dtype is target:
        return tensor
    if target is dtypes.float32 or not region.cache_enabled or not tensor._requires_grad or tensor._base is not None \
            or tensor._spec.dtype is not dtypes.float32:
        return _converted(tensor, target)
    key = id(tensor), modes.grad
    found = region.casts.get(key)
    version = tensor._storage.version
    if found is None or found[1] != version or found[2]._spec.dtype is not target:
        found = region.casts[key] = tensor, version, _converted(tensor, target)
    return found[2]


def _converted(tensor, target):
    """`tensor.to(target)`, of another dtype than it has; of a plain tensor without the questions that `to` asks."""
    if tensor.__class__ not in overrides.tensor_types:
        return tensor.to(target)
    return door.operations["_to_copy"](tensor, target, None, tensor._spec.device)


def _widest(args, kwargs, device):
    """float32 if a tensor is of it, else the region's dtype, which all others then have to have."""
    found = modes.autocast[device]
    for spec in _specs((*args, *kwargs.values())):
        if eligible(spec, device) and spec.dtype is not found:
            if spec.dtype is not dtypes.float32 and found is not dtypes.float32:
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize: a tensor of "
                                   f"{spec.dtype} in an autocast region of {found}. Use one of them, or float32.")
            found = dtypes.float32
    return found


def _specs(things):
    for thing in things:
        if hasattr(thing, "_spec"):
            yield thing._spec
        elif thing.__class__ in (tuple, list):
            yield from _specs(thing)


def clear_cache():
    """Forget the casts of parameters."""
    region.casts.clear()


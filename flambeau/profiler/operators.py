"""What PyTorch's profiler calls the functions that are called here: `aten::add_`, else `flambeau::name`."""
import functools

from .._library.aten import names

# What one of our operations is in PyTorch's library of operators, where the names differ by more than `_`.
ATEN_NAMES = {
    "_affine": "addmm", "_bmm_as_it_lies": "bmm", "_attend": "scaled_dot_product_attention",
    "cross_entropy": "cross_entropy_loss", "_class_entropy": "cross_entropy_loss", "_nll": "nll_loss",
    "_nll2d": "nll_loss2d", "_nll_backward": "nll_loss_backward", "_mse": "mse_loss", "_bce": "binary_cross_entropy",
    "_bce_logits": "binary_cross_entropy_with_logits", "_huber": "huber_loss", "_smooth_l1": "smooth_l1_loss",
    "_soft_margin": "soft_margin_loss", "_convolution_weight": "convolution_backward",
    "_softmax_backward": "_softmax_backward_data", "_log_softmax_backward": "_log_softmax_backward_data",
    "_sum_dim": "sum", "_mean_dim": "mean", "_max_dim": "max", "_min_dim": "min", "_prod_dim": "prod",
    "_median_dim": "median", "_nanmedian_dim": "nanmedian", "_squeeze_dim": "squeeze", "_squeeze_dims": "squeeze",
    "_clamp_tensor": "clamp", "_fill_tensor": "fill", "_masked_fill_tensor": "masked_fill",
    "_index_fill_tensor": "index_fill", "_pow_number": "pow", "_pow_of_number": "pow", "_round_decimals": "round",
    "_scatter_value": "scatter", "_drop": "dropout", "_view_dtype": "view", "_layer_norm": "native_layer_norm",
    "_batch_norm": "native_batch_norm", "_group_norm": "native_group_norm", "_norm_backward": "native_norm_backward",
    "_index_backward": "index_put", "_inv": "linalg_inv_ex", "_lu": "linalg_lu_factor_ex", "_solve": "linalg_solve_ex",
    "_pinv": "linalg_pinv", "_c2c": "_fft_c2c", "_c2r": "_fft_c2r", "_r2c": "_fft_r2c", "__rdiv__": "div",
    "_lstm_layer": "lstm", "_gru_layer": "gru", "_rnn_layer": "rnn_tanh", "_mean_pool": "avg_pool2d",
    "_max_pool": "max_pool2d_with_indices", "true_divide": "div", "interpolate": "upsample", "_copy": "copy_",
    **{f"_{name}": f"{name}_" for name in ("normal", "uniform", "bernoulli", "random", "exponential", "cauchy",
                                            "geometric", "log_normal")},
    **dict.fromkeys(("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat",
                     "cdouble", "type", "cpu", "cuda"), "to"),
}
# Functions that tell something of a tensor and compute nothing.
UNSHOWN = frozenset("""dim numel size stride storage_offset get_device is_complex is_conj is_contiguous is_inference
    is_floating_point is_neg is_nonzero is_pinned is_same_size is_set_to is_signed requires_grad_ retain_grad
    result_type record_stream set_ backward backwards grad text formatted _is_view __len__ data_ptr element_size
    contains dlpack dlpack_device is_same_size_method is_shared register_hook register_post_accumulate_grad_hook storage
    storage_type untyped_storage truth to_int to_float to_index to_complex array iterate tolist numpy new deep reduce
    array_function array_ufunc broadcast_shapes""".split())
PREFIXES = ("", "linalg_", "fft_", "special_")


@functools.cache
def operator_name(name):
    """`aten::name` of one of our functions or operations, `flambeau::name` where PyTorch has none of that name."""
    known = names()
    if name in ATEN_NAMES:
        return f"aten::{ATEN_NAMES[name]}"
    for own in (name, name.removeprefix("_")):
        for prefix in PREFIXES:
            if prefix + own in known:
                return f"aten::{prefix}{own}"
    return f"flambeau::{name}"


def called_name(name, args):
    """What PyTorch's profiler calls a call of our function `name`; None where it lists none."""
    if name in UNSHOWN:
        return None
    if name in ("__getitem__", "__setitem__"):
        part = args[1] if len(args) > 1 else None
        if name == "__setitem__":
            return "aten::index_put_" if _is_indexed(part) else "aten::copy_"
        return "aten::select" if isinstance(part, int) else "aten::index" if _is_indexed(part) else "aten::slice"
    return operator_name(name)


def _is_indexed(part):
    """Whether an index has positions or a mask in it, and so is no view."""
    return any(not isinstance(one, (int, slice, type(None), type(Ellipsis)))
               for one in (part if isinstance(part, tuple) else (part,)))

"""`torch.ops.aten`: Flambeau's operations by the names of PyTorch's own library of operators.

Every name that PyTorch 2.13 has there can be named, with its overloads (aten.txt), since programs keep them in tables.
Called, an overload is the function of `torch`, `torch.nn.functional`, `torch.linalg`, … that has its name: ATen's
arguments are that function's, in its order. The few that have another name or order stand in `ATEN_ONLY`. One that
Flambeau lacks raises NotImplementedError when it is called.

The operations behind the names are Flambeau's: what PyTorch does in several of them may be one here, and the other way
round.
"""
import functools
import os
import re
from importlib import import_module
from importlib.util import find_spec

from ...base import dtypes
from ...tensor import create, foreach, forms, functions, indexing, random
from ...tensor.overrides import handle_torch_function, has_torch_function
from ...tensor.tensor import Tensor
from .overloads import OpOverload, OpOverloadPacket, known_packets, ops

top = forms.namespace[""]
functional = forms.namespace["nn.functional"]
MODULE_PREFIXES = ("linalg", "special", "fft")    # the first part of an ATen name, where a module has the rest


@functools.cache
def names():
    """{operator: its overloads} of all that PyTorch has."""
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "aten.txt"), encoding="utf-8") as file:
        for line in file:
            if line[0] == "#":
                continue
            name, colon, overloads = line.partition(":")
            found.update({name: overloads.split()} if colon else dict.fromkeys(line.split(), ["default"]))
    return found


def packet(name):
    """The operator `aten::name` with its overloads, None if PyTorch has none of that name."""
    overloads = names().get(name)
    if overloads is None:
        return None
    made = OpOverloadPacket("aten", name)
    made._overloads_by_name = {overload: AtenOverload("aten", name, overload) for overload in overloads}
    return made


known_packets["aten"] = packet


class AtenOverload(OpOverload):
    """One of Flambeau's operations under an ATen name."""

    def __call__(self, /, *args, **kwargs):
        tensors = tuple(t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, (list, tuple)) else (a,)))
        if has_torch_function(tensors):
            return handle_torch_function(self, tensors, *args, **kwargs)
        return self.function()(*args, **kwargs)

    def function(self):
        """What is called; NotImplementedError if Flambeau has nothing of that name."""
        if self._function is None:
            self._function = ATEN_ONLY.get(f"{self._opname}.{self._overloadname}") or ATEN_ONLY.get(self._opname) \
                or found(self._opname)
        if self._function is None:
            raise NotImplementedError(f"torch.ops.{self} is an operator of PyTorch's that Flambeau lacks")
        return self._function


def found(name):
    """Flambeau's function for an ATen name, None if there is none."""
    for module in functions.PUBLIC_MODULES:
        if name in module.PUBLIC:
            return getattr(module, name)
    if name in top:
        return top[name]
    prefix, _, rest = name.partition("_")
    if prefix in MODULE_PREFIXES and rest and find_spec(f"...{prefix}", __package__):
        module = import_module(f"...{prefix}", __package__)
        if hasattr(module, rest):
            return getattr(module, rest)
    if name in functional:
        return functional[name]
    if name.startswith("_foreach_"):
        return getattr(foreach, name, None)              # some exist in place alone
    method = getattr(Tensor, name, None)
    return method if callable(method) else None


# --- what an operation of ours is called there --------------------------------------------------


# What one of our operations is in PyTorch's library of operators, where the names differ by more than `_`.
ATEN_NAMES = {
    "_affine": "addmm", "_bmm_as_it_lies": "bmm", "_attend": "scaled_dot_product_attention",
    "cross_entropy": "cross_entropy_loss", "_class_entropy": "cross_entropy_loss", "_nll": "nll_loss_forward",
    "_nll2d": "nll_loss2d_forward", "_nll_backward": "nll_loss_backward", "_mse": "mse_loss",
    "_bce": "binary_cross_entropy", "_bce_logits": "binary_cross_entropy_with_logits",
    "_huber": "huber_loss", "_smooth_l1": "smooth_l1_loss", "_soft_margin": "soft_margin_loss",
    "_convolution_weight": "convolution_backward",
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
PREFIXES = ("", "linalg_", "fft_", "special_")
ARITHMETIC = ("add", "sub", "rsub", "mul", "div")         # a number is a tensor to these, in PyTorch


def operator_of(op, args):
    """The operator that stands for an operation of ours with these arguments; of the namespace `flambeau`, if PyTorch
    has none like it."""
    rest = args[1:]
    return _operator_of(op, any(isinstance(a, Tensor) for a in rest),
                        any(isinstance(a, (int, float, complex)) for a in rest))


@functools.cache
def _operator_of(op, tensors, number):
    name = _aten_name(op)
    if name not in names():
        return OpOverload("flambeau", op.__name__.strip("_"), "default")
    packet = getattr(ops.aten, name)
    there = packet.overloads()
    if op.__name__.endswith(("_dim", "_dims")):
        wanted = ["dim_IntList", "dim", "dims"]
    elif name == "where":
        wanted = ["self"]
    elif name in ("var", "std", "var_mean", "std_mean"):
        wanted = ["correction"]
    elif "default" in there:
        wanted = ["default"]
    elif name == "pow":
        wanted = ["Tensor_Tensor" if tensors else "Tensor_Scalar"]
    elif name not in ARITHMETIC and number:
        wanted = ["Scalar", "int"]
    else:
        wanted = ["Tensor", "int"]
    return getattr(packet, next((one for one in wanted if one in there), there[0]))


def _aten_name(op):
    """PyTorch's name for what an operation of ours is: by the table, by that of its node, by its own."""
    node = re.sub(r"Backward\d*$", "", op.node or "").lower()
    return ATEN_NAMES.get(op.__name__) or _names_of_nodes().get(node) or aten_name(op.__name__)


def aten_name(name):
    """What PyTorch calls our function or operation `name`; None where it has none of that name."""
    if name in ATEN_NAMES:
        return ATEN_NAMES[name]
    known = names()
    for own in (name, name.removeprefix("_")):
        for prefix in PREFIXES:
            if prefix + own in known:
                return prefix + own
    return None


@functools.cache
def _names_of_nodes():
    """{name of a node, in small letters: operator}; what begins with an underscore only if nothing else has it."""
    ordered = sorted((name for name in names() if name[-1] != "_"), key=lambda name: name[0] != "_")
    return {name.replace("_", ""): name for name in ordered}


# --- other names, or other orders of arguments --------------------------------------------------


def _slice(self, dim=0, start=None, end=None, step=1):
    return self[(slice(None),) * (dim % self.dim()) + (slice(start, end, step),)]


def _index(self, indices):
    return indexing.getitem(self, tuple(slice(None) if i is None else i for i in indices))


def _to_copy(self, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    return self.to(dtype=dtype or self.dtype, device=device or self.device, copy=True)


def _softmax(self, dim, half_to_float):
    return top["softmax"](self, dim)


def _log_softmax(self, dim, half_to_float):
    return top["log_softmax"](self, dim)


def _reshape_alias(self, size, stride):
    return self.as_strided(size, stride, self.storage_offset())


def _scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=None):
    return create.tensor(s, dtype=dtype or dtypes.get_default_dtype(), device=device)


def _native_layer_norm(input, normalized_shape, weight, bias, eps):
    dims = tuple(range(-len(normalized_shape), 0))
    mean = input.mean(dims, keepdim=True)
    return functional["layer_norm"](input, normalized_shape, weight, bias, eps), mean, \
        (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()


def _native_dropout(input, p, train):
    if not train:
        return input.clone(), top["ones_like"](input, dtype=dtypes.bool)
    mask = random.rand_like(input) >= p
    return input * mask / (1 - p), mask


def _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None,
                                                scale=None):
    made = functional["scaled_dot_product_attention"](query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return made, (scores if attn_mask is None else scores + attn_mask).logsumexp(-1)


ATEN_ONLY = {
    "slice": _slice, "index": _index, "_unsafe_index": _index,
    "_to_copy": _to_copy, "to": Tensor.to, "_softmax": _softmax, "_log_softmax": _log_softmax,
    "_reshape_alias": _reshape_alias, "scalar_tensor": _scalar_tensor,
    "native_layer_norm": _native_layer_norm, "native_dropout": _native_dropout,
    "_scaled_dot_product_flash_attention_for_cpu": _scaled_dot_product_flash_attention_for_cpu,
    "_unsafe_view": Tensor.view, "alias": forms.declared["_alias"], "lift_fresh": forms.declared["_alias"],
    "lift": forms.declared["_alias"], "lift_fresh_copy": Tensor.clone, "_local_scalar_dense": Tensor.item,
    "sym_size": Tensor.size, "sym_stride": Tensor.stride, "sym_numel": Tensor.numel,
    "sym_storage_offset": Tensor.storage_offset, "dim": Tensor.dim, "size": Tensor.size, "stride": Tensor.stride,
    "is_same_size": lambda self, other: self.shape == other.shape,
    "_index_put_impl_": Tensor.index_put_, "sum.dim_IntList": top["sum"],
}

"""Batch norm in evaluation is a scaling and a shift: they are folded into the layer before it."""
import copy

from ...tensor.functions import ones_like, zeros_like
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def folded(weight, bias, mean, var, eps, scale, shift, lay):
    """(weight, bias) of a layer that does what it does now, and then the norm. `lay`: how a channel lies in weight."""
    bias = zeros_like(mean) if bias is None else bias
    factor = (ones_like(mean) if scale is None else scale) * (var + eps).rsqrt()
    shift = zeros_like(mean) if shift is None else shift
    new_weight = (weight * factor.reshape(lay)).to(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).to(bias.dtype)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, bias.requires_grad)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """(weight, bias) of a convolution that includes the batch norm after it."""
    lay = [1] * conv_w.dim()
    lay[1 if transpose else 0] = -1
    return folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, lay)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """(weight, bias) of a linear layer that includes the batch norm after it."""
    return folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fused(layer, bn, fold, *more):
    """A copy of `layer` that includes `bn`."""
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call eval() on both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("Fusion needs the running statistics: running_mean and running_var are None")
    made = copy.deepcopy(layer)
    made.weight, made.bias = fold(made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
                                  *more)
    return made


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A convolution that does what `conv` and then `bn` do; both must be in evaluation mode."""
    return fused(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_linear_bn_eval(linear, bn):
    """A linear layer that does what `linear` and then `bn` do; both must be in evaluation mode."""
    if not linear.training and not bn.training and linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
                             f"{linear.out_features} and {bn.num_features}")
    return fused(linear, bn, fuse_linear_bn_weights)

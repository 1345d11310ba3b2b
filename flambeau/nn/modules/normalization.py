"""Normalisation over the features of each sample: layer, group and RMS norm, and local response normalisation."""
from ...tensor.functions import cat, empty
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]


class _Affine(Module):
    """A normalisation with a weight and a bias of one shape, where they are asked for."""

    def _make(self, shape, wanted, device, dtype):
        for name, asked in wanted.items():
            self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if asked else None)
        self.reset_parameters()

    def reset_parameters(self):
        """A weight of ones and a bias of zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)


def _dims(normalized_shape):
    """The sizes of the last dimensions, from one of them or all."""
    return (normalized_shape,) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)


class LayerNorm(_Affine):
    """The last dimensions, of `normalized_shape`, brought to zero mean and unit variance; then scaled and shifted.

    >>> torch.nn.LayerNorm(2)(torch.tensor([[1., 3.]]))
    tensor([[-1.0000,  1.0000]], grad_fn=<NativeLayerNormBackward0>)
    """

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape, self.eps = _dims(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        wanted = {"weight": elementwise_affine, "bias": elementwise_affine and bias}
        self._make(self.normalized_shape, wanted, device, dtype)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(_Affine):
    """The last dimensions, of `normalized_shape`, divided by their root mean square; then scaled.

    Without an `eps`, it is that of the input's dtype.
    """

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape, self.eps = _dims(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        self._make(self.normalized_shape, {"weight": elementwise_affine}, device, dtype)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Each of `num_groups` groups of channels of each sample of [N, C, ...] brought to zero mean and unit variance."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make(num_channels, {"weight": affine, "bias": affine and bias}, device, dtype)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


# --- over neighbouring channels ---------------------------------------------------------------------------------------


class _ResponseNorm(Module):
    """Division by a power of the squares in `size` neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_ResponseNorm):
    """[N, C, ...] divided by (k + alpha * the mean of the squares of `size` neighbouring channels) ** beta."""

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_ResponseNorm):
    """Local response normalisation of [N, C, H, W], as Caffe and Lua Torch had it."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__(size, alpha, beta, k)

    def forward(self, input):
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        square, reach, channels = input * input, (self.size - 1) // 2, input.shape[1]
        padded = F.pad(square, (0, 0, 0, 0, reach, reach))
        total = sum(padded.narrow(1, i, channels) for i in range(2 * reach + 1))
        # In PyTorch's numbers the first channel never leaves the sliding sum, so it counts in every window.
        if channels > reach + 1:
            total = cat((total[:, :reach + 1], total[:, reach + 1:] + square[:, :1]), 1)
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta

"""Batch normalisation: channels brought to zero mean and unit variance over the batch, in training.

In evaluation, the running statistics that training left take the place of the batch's own.
"""
from ...base import dtypes
from ...tensor.functions import empty, ones, tensor, zeros
from .. import functional as F, init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["BatchNorm1d", "LazyBatchNorm1d", "BatchNorm2d", "LazyBatchNorm2d", "BatchNorm3d", "LazyBatchNorm3d",
           "SyncBatchNorm"]


class _NormBase(Module):
    """What batch and instance normalisation share: weight, bias and running statistics."""

    _version = 2              # version 1 had no num_batches_tracked
    _takes = ()               # how many dimensions the input may have

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None, *, bias=True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(num_features, **made)) if wanted else None)
        track = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **made) if track else None)
        self.register_buffer("running_var", ones(num_features, **made) if track else None)
        self.register_buffer("num_batches_tracked",
                             tensor(0, dtype=dtypes.int64, device=device) if track else None)
        self.reset_parameters()

    def reset_running_stats(self):
        """Forget what was tracked."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """Weights of one, biases of zero, and nothing tracked."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input):
        if not self._takes:
            raise NotImplementedError(f"{type(self).__name__} does not say which inputs it takes: it needs a "
                                      "_check_input_dim(input)")
        if input.dim() not in self._takes:
            raise ValueError(f"expected {' or '.join(f'{n}D' for n in self._takes)} input (got {input.dim()}D input)")

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        version, key = local_metadata.get("version"), prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            known = count is not None and not count.is_meta
            state_dict[key] = count if known else tensor(0, dtype=dtypes.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)


class _BatchNorm(_NormBase):
    """Batch normalisation; subclasses say how many dimensions their input has."""

    def forward(self, input):
        self._check_input_dim(input)
        training, momentum = self.training, self.momentum
        mean, var = self.running_mean, self.running_var
        if not training:
            return F.batch_norm(input, mean, var, self.weight, self.bias, mean is None and var is None,
                                0.0 if momentum is None else momentum, self.eps)
        if not self.track_running_stats:
            mean = var = None
        elif self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:             # the plain average: one over a count that stays a recorded tensor
                momentum = self.num_batches_tracked.double().reciprocal()
        return F.batch_norm(input, mean, var, self.weight, self.bias, True, 0.0 if momentum is None else momentum,
                            self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of [N, C] or [N, C, L].

    >>> layer = torch.nn.BatchNorm1d(2)
    >>> layer(torch.tensor([[1., 4.], [3., 4.]]))
    tensor([[-1.0000,  0.0000],
            [ 1.0000,  0.0000]], grad_fn=<NativeBatchNormBackward0>)
    >>> layer.running_mean
    tensor([0.2000, 0.4000])
    """

    _takes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of [N, C, H, W]."""

    _takes = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of [N, C, D, H, W]."""

    _takes = (5,)


# --- lazy -------------------------------------------------------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalisation that takes `num_features` from its first input."""

    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *,
                 bias=True):
        made = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **made)      # nothing made yet
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(**made)
            if bias:
                self.bias = UninitializedParameter(**made)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**made)
            self.running_var = UninitializedBuffer(**made)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        """Make weight, bias and statistics for the channels of `input`."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for name in ("weight", "bias", "running_mean", "running_var"):
            member = getattr(self, name)
            if member is not None:
                member.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm1d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm1d
    _takes = (2, 3)


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm2d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm2d
    _takes = (4,)


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A `BatchNorm3d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm3d
    _takes = (5,)


# --- over several processes -------------------------------------------------------------------------------------------


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of [N, C, ...]; over the processes of a group, where there is one.

    In a program of one process it is a `BatchNorm` for any number of dimensions.
    """

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None,
                 device=None, dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input):
        if input.shape[1] == 0:
            raise ValueError(f"SyncBatchNorm number of input channels should be non-zero, got {list(input.shape)}")

    def forward(self, input):
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        return super().forward(input)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """`module` with every batch normalisation in it replaced by one of this class, its state kept.

        >>> torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm2d(4)))
        Sequential(
          (0): SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
        )
        """
        made = module
        if isinstance(module, _BatchNorm):
            made = SyncBatchNorm(module.num_features, module.eps, module.momentum, module.affine,
                                 module.track_running_stats, process_group, bias=module.bias is not None)
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made

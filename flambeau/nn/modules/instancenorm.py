"""Instance normalisation: each channel of each sample brought to zero mean and unit variance."""
from ...base.errors import warn
from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
           "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """Instance normalisation; subclasses say how many dimensions their input has, with and without a batch."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self):
        """How many dimensions an input without a batch has."""
        return self._takes[0]

    def _handle_no_batch_input(self, input):
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input):
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                               self.training or not self.track_running_stats,
                               0.0 if self.momentum is None else self.momentum, self.eps)

    def forward(self, input):
        self._check_input_dim(input)
        single = input.dim() == self._get_no_batch_dim()
        channels = input.shape[0 if single else 1]
        if channels != self.num_features:
            at = 0 if single else 1
            if self.affine:
                raise ValueError(f"expected input's size at dim={at} to match num_features ({self.num_features}), but "
                                 f"got: {channels}.")
            warn(f"input's size at dim={at} does not match num_features ({channels}, {self.num_features}). You can "
                 "silence this warning by not passing in num_features, which is not used because affine=False")
        return self._handle_no_batch_input(input) if single else self._apply_instance_norm(input)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        # Files from before version 1 may hold statistics of a layer that did not need to keep them.
        if local_metadata.get("version") is None and not self.track_running_stats:
            stale = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if stale:
                name, keys = type(self).__name__, " and ".join([f'"{key}"' for key in stale])
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {keys} for {name} with track_running_stats=False. A "
                    f"checkpoint saved before 0.4.0 may hold them, because {name} did track running stats then. Please "
                    f"remove these keys from state_dict, or set track_running_stats=True in {name} to use them.")
                for key in stale:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of [N, C, L] (or [C, L])."""

    _takes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of [N, C, H, W] (or [C, H, W]).

    >>> torch.nn.InstanceNorm2d(1)(torch.tensor([[[1., 3.]]]))
    tensor([[[-1.0000,  1.0000]]])
    """

    _takes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of [N, C, D, H, W] (or [C, D, H, W])."""

    _takes = (4, 5)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm1d` that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm1d
    _takes = (2, 3)


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm2d` that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm2d
    _takes = (3, 4)


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An `InstanceNorm3d` that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm3d
    _takes = (4, 5)

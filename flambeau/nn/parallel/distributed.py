"""The wrapper for training in several processes. In a world of one it runs its module as it is."""
from contextlib import contextmanager

from ..modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """`module`, whose gradients are averaged over all processes: over this one, so they stay as they are.

    As in PyTorch, `torch.distributed.init_process_group` comes before it; there it is said that one process is all.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=None, init_sync=True,
                 process_group=None, bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False,
                 gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None,
                 skip_all_reduce_unused_params=False, bucket_cap_mb_list=None, batched_grad_copy=False,
                 forward_sync_buffers=None):
        from ... import distributed
        super().__init__()
        if not distributed.is_initialized():
            raise ValueError("Default process group has not been initialized, please make sure to call "
                             "init_process_group. Where there is one process, the module alone does the same.")
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that "
                               "requires a gradient.")
        if device_ids:
            raise ValueError(f"device_ids={device_ids}: modules are on the CPU here, for which device_ids is None")
        self.module, self.process_group = module, process_group
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self):
        """A context in which gradients are not averaged."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

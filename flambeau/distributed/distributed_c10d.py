"""Processes that work together, in a world of one: `init_process_group` takes one process, and what is sent stays here.

The sum over all processes is then the tensor itself, a broadcast is nothing, a gathered list has one entry. A program
that was started for one process runs; a world of more is refused.
"""
import os
from enum import IntEnum

from ..base.questions import Question as _Question
from ..compat.missing import rest_of
from ..futures import Future
from ..tensor.tensor import Tensor
from .constants import default_pg_timeout

__all__ = ["Backend", "GroupMember", "P2POp", "ProcessGroup", "ReduceOp", "Work", "all_gather",
           "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
           "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather",
           "gather_object", "get_backend", "get_global_rank", "get_group_rank", "get_node_local_rank",
           "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
           "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available",
           "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend",
           "monitored_barrier", "new_group", "recv", "reduce", "reduce_op", "reduce_scatter",
           "reduce_scatter_tensor", "scatter",
           "scatter_object_list", "send"]

__getattr__ = rest_of("torch.distributed")


# --- questions ------------------------------------------------------------------------------------------------------


@_Question
def is_available():
    """Whether several processes can work together: they cannot."""
    return False


def is_backend_available(backend):
    """Whether several processes can work together over `backend`: they cannot."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_available


@_Question
def is_initialized():
    """Whether `init_process_group` was called."""
    return group.WORLD is not None


@_Question
def is_torchelastic_launched():
    """Whether this process was started by torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_rank(group=None):
    """The number of this process among those of the group: 0; -1 if it is not in the group."""
    return 0 if _member(group) else -1


def get_world_size(group=None):
    """How many processes there are in the group: 1; -1 if this one is not in it."""
    return 1 if _member(group) else -1


def get_node_local_rank(fallback_rank=None):
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", 0 if fallback_rank is None else fallback_rank))


def get_backend(group=None):
    """What the group was made with."""
    return Backend(_made(group)._backend)


def get_process_group_ranks(group=None):
    """The numbers of the processes of a group."""
    return [0] if _member(group) else []


def get_global_rank(group, group_rank):
    """The number of a process of a group among all."""
    _zero(group_rank, "group_rank")
    return 0


def get_group_rank(group, global_rank):
    """The number of a process in a group."""
    _zero(global_rank, "global_rank")
    return 0


# --- the group ------------------------------------------------------------------------------------------------------


class Backend(str):
    """What carries data between processes, as text: `Backend("GLOO")` is "gloo"."""

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE = "undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name}")
        return str.__new__(cls, name.lower())


class ProcessGroup:
    """Processes that work together: this one."""

    def __init__(self, backend="gloo"):
        self._backend = backend

    def rank(self):
        """The number of this process in it."""
        return 0

    def size(self):
        """How many processes are in it."""
        return 1

    def name(self):
        """What it was made with."""
        return self._backend


class GroupMember:
    """The group of all processes, None before `init_process_group`; and what stands for a group without this one."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


group = GroupMember


class Work:
    """What a collective with `async_op=True` gives: it is done already."""

    def wait(self, timeout=None):
        """Wait for it; there is nothing to wait for."""
        return True

    def is_completed(self):
        """Whether it is done: it is."""
        return True

    is_success = is_completed

    def get_future(self):
        """A Future that is done."""
        made = Future()
        made.set_result(None)
        return made


class RedOpType(IntEnum):
    """How values of several processes become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    def __str__(self):
        return f"RedOpType.{self.name}"


class _ReduceOpType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, RedOpType) or type.__instancecheck__(cls, instance)


class ReduceOp(metaclass=_ReduceOpType):
    """How values of several processes become one; of one process, its own."""

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType

    def __new__(cls, op):
        return RedOpType(op)


reduce_op = ReduceOp


class P2POp:
    """A message between two processes: with one there is no other to send to."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        _no_other_process("P2POp")


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       pg_options=None, device_id=None):
    """Make the group of all processes: this one. The number of processes is `world_size`, or `$WORLD_SIZE`."""
    if group.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    size = int(os.environ.get("WORLD_SIZE", 1)) if world_size in (-1, None) else world_size
    if size != 1:
        raise NotImplementedError(f"world_size is {size}, and Flambeau has one process: start the program once, on all "
                                  "cores, without torchrun; or with --nproc-per-node=1")
    if rank not in (-1, 0, None):
        raise ValueError(f"rank is {rank}, and there is one process, whose rank is 0")
    group.WORLD = ProcessGroup(str(backend or "gloo").lower())


def destroy_process_group(group=None):
    """Forget the group of all processes, or another one."""
    if group is None or group is GroupMember.WORLD:
        GroupMember.WORLD = None


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False,
              group_desc=None, device_id=None, sort_ranks=True):
    """A group of some of the processes: of this one, or of none."""
    ranks = [0] if ranks is None else list(ranks)
    if any(number != 0 for number in ranks):
        raise ValueError(f"ranks={ranks} names processes that are not there: there is one process, whose rank is 0")
    return ProcessGroup(str(backend or _made(None)._backend)) if ranks else GroupMember.NON_GROUP_MEMBER


def _member(group):
    return group is not GroupMember.NON_GROUP_MEMBER


def _made(group):
    """The group, which has to be made."""
    found = GroupMember.WORLD if group is None else group
    if found is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return found


def _get_default_group():
    """lightning: the group of all processes."""
    return _made(None)


def _zero(number, what):
    if number not in (None, 0):
        raise ValueError(f"{what} is {number}, and there is one process, whose rank is 0")


def _no_other_process(what):
    raise ValueError(f"torch.distributed.{what}: there is one process, and nobody to send to or to receive from")


def _done(group, async_op):
    _made(group)
    return Work() if async_op else None


# --- collectives ----------------------------------------------------------------------------------------------------


def _one(tensors, what):
    """The tensor of a list with a place for each process."""
    if len(tensors) != 1:
        raise RuntimeError(f"{what} has {len(tensors)} tensors, and there is one process: it needs 1")
    return tensors[0]


def _copy(into, tensor):
    if into.shape != tensor.shape or into.dtype != tensor.dtype:
        raise RuntimeError(f"invalid tensor: expected {tensor.dtype} {list(tensor.shape)}, got {into.dtype} "
                           f"{list(into.shape)}")
    into.detach().copy_(tensor)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce the tensors of all processes into each: of one, it stays as it is."""
    _tensor(tensor)
    return _done(group, async_op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Reduce the tensors of all processes into that of one: it stays as it is."""
    _tensor(tensor)
    _zero(dst, "dst")
    _zero(group_dst, "group_dst")
    return _done(group, async_op)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Give all processes the tensor of one: they have it."""
    _tensor(tensor)
    _zero(src, "src")
    _zero(group_src, "group_src")
    return _done(group, async_op)


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """Wait for all processes: they are here."""
    return _done(group, async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Wait for all processes: they are here."""
    _made(group)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Copy the tensors of all processes into a list: one."""
    _copy(_one(tensor_list, "tensor_list"), _tensor(tensor))
    return _done(group, async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Copy the tensors of all processes into one tensor."""
    _copy(output_tensor.view(input_tensor.shape), _tensor(input_tensor))
    return _done(group, async_op)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Copy the tensors of all processes into a list in one of them."""
    _zero(dst, "dst")
    _copy(_one(gather_list or [], "gather_list"), _tensor(tensor))
    return _done(group, async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Copy a list in one process into tensors of all."""
    _zero(src, "src")
    _copy(_tensor(tensor), _one(scatter_list or [], "scatter_list"))
    return _done(group, async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce lists of tensors, and give each process its part."""
    _copy(_tensor(output), _one(input_list, "input_list"))
    return _done(group, async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce tensors, and give each process its part."""
    _copy(_tensor(output), input.view(output.shape))
    return _done(group, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Give each process a tensor of each."""
    _copy(_one(output_tensor_list, "output_tensor_list"), _one(input_tensor_list, "input_tensor_list"))
    return _done(group, async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Give each process a part of the tensor of each."""
    _copy(_tensor(output), input)
    return _done(group, async_op)


def all_gather_object(object_list, obj, group=None):
    """Put an object of each process into a list."""
    _made(group)
    _one(object_list, "object_list")
    object_list[0] = obj


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """Put an object of each process into a list in one of them."""
    _zero(dst, "dst")
    all_gather_object(object_gather_list or [], obj, group)


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Give all processes the objects of one: they have them."""
    _zero(src, "src")
    _made(group)


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None,
                        group_src=None):
    """Give each process an object of a list in one."""
    _zero(src, "src")
    _made(group)
    scatter_object_output_list[0] = _one(scatter_object_input_list or [], "scatter_object_input_list")


def _tensor(tensor):
    if not isinstance(tensor, Tensor):
        raise TypeError("Invalid function argument. Expected parameter `tensor` of type torch.Tensor but got "
                        f"{type(tensor)} instead.")
    return tensor


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """Send a tensor to another process: there is none."""
    _no_other_process("send")


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Receive a tensor from another process: there is none."""
    _no_other_process("recv")


isend, irecv = send, recv

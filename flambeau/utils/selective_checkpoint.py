"""Checkpoints that keep the results of some operations: `create_selective_checkpoint_contexts`.

In the first run the policy is asked about every operation, under the name that PyTorch's library of operators has for
it, and what is to be saved is kept here. In the second run the storage of the same operation's result gets the value
that was kept: what was recorded to compute it is no longer wanted, and does not run. Operators of programs
(`torch.library`), which run at the call, are not called a second time.
"""
import enum
from collections import defaultdict

from .._ops import HigherOrderOperator, OpOverload, OpOverloadPacket, ops
from ..autograd.modes import no_grad
from ..base.pytree import tree_map
from ..compat._library.aten import operator_of
from ..compat._library.overloads import kernels_replaced
from ..tensor.function_modes import watching
from ..tensor.tensor import Tensor, wrap
from ..trace.value import Storage

MISMATCH = ("This can happen if the operations in the checkpointed region are nondeterministic or depend on global "
            "state that changed between forward and backward.")
RECOMPUTED, USED = object(), object()         # instead of a saved result


class CheckpointPolicy(enum.Enum):
    """What becomes of an operation's result: saved by the first run, or computed again by the second.

    What is saved stays on its device: the two OFFLOADs are refused.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


SAC_IGNORED_OPS = {ops.aten.detach.default}              # what no policy is asked about
SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told besides the operation: its result. (It is asked in the first run alone.)"""

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


class _SavedTensor:
    """A tensor of a saved result, as it was: what is written to it makes its storage another Value."""

    def __init__(self, tensor):
        self.tensor, self.version = tensor.detach(), tensor._version
        self.value = tensor._storage.value

    def given(self, may_be_written):
        if self.tensor._version != self.version and not may_be_written:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated. Write to a "
                               "clone() of it, or give allow_cache_entry_mutation=True to "
                               "create_selective_checkpoint_contexts")
        storage = self.tensor._storage
        return wrap(Storage.of(self.value, storage.nbytes, storage.device), self.tensor._spec, self.tensor._offset)


class _Telling:
    """A context in which operations are told of, each with how many of the same came before."""

    def __init__(self, results):
        self.results = results                # operator → {which call of it: its result}

    def __enter__(self):
        self.counts = defaultdict(int)
        self.inside = watching(self.recorded), kernels_replaced(self.kernel)
        for context in self.inside:
            context.__enter__()
        return self

    def __exit__(self, *exc):
        for context in reversed(self.inside):
            context.__exit__(*exc)

    def number(self, operator):
        self.counts[operator] += 1
        return self.counts[operator] - 1


class _Saving(_Telling):
    """Asks the policy, and keeps what it says."""

    def __init__(self, policy, results):
        super().__init__(results)
        self.policy = policy

    def recorded(self, op, args, made):
        self.ask(operator_of(op, args), args, {}, made, args)

    def kernel(self, operator, run, args, kwargs):
        made = run(args, kwargs)
        self.ask(operator, args, kwargs, made, ())
        return made

    def ask(self, operator, args, kwargs, made, inputs):
        number = self.number(operator)
        with no_grad():                       # what a policy computes is no part of the stretch
            said = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=made), operator, *args,
                               **kwargs)
        if said in OFFLOADED:
            raise NotImplementedError(f"{said} is not in Flambeau: nothing is moved between devices for a checkpoint; "
                                      "CheckpointPolicy.MUST_SAVE keeps the result where it is")
        saved = (said in SAVED or said is True) and not _looks(made, inputs)
        self.results[operator][number] = tree_map(_saved, made) if saved else RECOMPUTED


class _Restoring(_Telling):
    """Gives what is saved instead of computing it."""

    def __init__(self, results, may_be_written):
        super().__init__(results)
        self.may_be_written = may_be_written

    def recorded(self, op, args, made):
        operator = operator_of(op, args)
        result = self.taken(operator)
        if result is not RECOMPUTED:
            for new, old in zip(_tensors(made), _tensors(self.given(result)), strict=True):
                if new._spec != old._spec:
                    raise RuntimeError(f"{operator} gave {list(old.shape)} of {old.dtype} in forward and "
                                       f"{list(new.shape)} of {new.dtype} during backward. {MISMATCH}")
                new._storage.value = old._storage.value

    def kernel(self, operator, run, args, kwargs):
        result = self.taken(operator)
        return run(args, kwargs) if result is RECOMPUTED else self.given(result)

    def given(self, result):
        return tree_map(lambda one: one.given(self.may_be_written) if isinstance(one, _SavedTensor) else one, result)

    def taken(self, operator):
        number = self.number(operator)
        if operator not in self.results:
            raise RuntimeError(f"{operator} encountered during backward but not found in storage. {MISMATCH}")
        result = self.results[operator].get(number)
        if result is None:
            raise RuntimeError(f"{operator} invocation index {number} encountered during backward but not found in "
                               f"storage. {MISMATCH}")
        if result is USED:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region "
                               "computed under selective activation checkpoint.")
        if result is not RECOMPUTED:
            self.results[operator][number] = USED
        return result


def _saved(thing):
    return _SavedTensor(thing) if isinstance(thing, Tensor) else thing


def _tensors(made):
    return made if isinstance(made, (tuple, list)) else (made,)


def _looks(made, inputs):
    """Whether a result looks at an input's memory: there is nothing to save then."""
    storages = {id(t._storage) for t in inputs if isinstance(t, Tensor)}
    return any(isinstance(t, Tensor) and id(t._storage) in storages for t in _tensors(made))


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The two contexts of a checkpoint that keeps some results: `checkpoint(f, x, use_reentrant=False,
    context_fn=functools.partial(create_selective_checkpoint_contexts, policy))`.

    A policy is called as `policy(context, operator, *args, **kwargs)` and returns a `CheckpointPolicy`; a list of
    operators (`torch.ops.aten.mm.default`) saves the results of these.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, (OpOverload, HigherOrderOperator)):
                advice = ("Please update the OpOverloadPacket to a specific OpOverload. For example, if you have "
                          "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`.") \
                    if isinstance(op, OpOverloadPacket) else ""
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
                                 f"{advice}")

        def policy(context, op, *args, **kwargs):
            saved = op in policy_fn_or_list
            return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    results: dict = defaultdict(dict)
    return _Saving(policy, results), _Restoring(results, allow_cache_entry_mutation)

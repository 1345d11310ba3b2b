"""How an optimizer's state is made before the first step, and how its steps are counted."""
from ..backends.cpu.memory import allocator
from ..base import dtypes, observers
from ..base.spec import CPU, as_device, spec
from ..tensor import overrides
from ..tensor.create import from_value
from ..tensor.functions import full
from ..tensor.tensor import Tensor
from ..tensor.write import may_refill, refill
from ..trace.recording.record import Trace, current
from ..trace.value import Value

# --- first steps ------------------------------------------------------------------------------------------------------

# Note [First steps]: a plan is found by the instructions of a trace. What only the first step records, the parameters'
# first contents and those of the states, would make it a trace of its own, to be planned and compiled for that one
# time. So what was recorded until then runs when an optimizer is made, and a state begins with contents that are there
# at once; from the first on, all steps are one trace.


def made_at_once(spec, number):
    """A tensor of the spec `spec` that holds `number` everywhere, and is not recorded; None where it has to be, because
    it could be noticed. See Note [First steps]."""
    trace = current()
    if spec.device is not CPU or not spec.dense or overrides.modes_active or trace.__class__ is not Trace \
            or observers.made is not None:
        return None
    array, _ = allocator.blank(spec)
    array[...] = number
    out = from_value(spec, Value.of(array, spec))
    out._site = trace.site or out._site
    return out


# --- counting steps --------------------------------------------------------------------------------------------------

# Note [Step counts]: PyTorch keeps a parameter's number of steps in a tensor, `state["step"]`, and computes bias
# corrections from its value, in double precision. To look at a tensor in the middle of a training step would run
# all that was recorded, and nothing could be replayed. So a Count counts on the host beside the tensor. It is trusted
# for as long as the tensor is the very one, and at the very version, that the Count last wrote; otherwise (a loaded
# state, a tensor that was written to) the tensor is looked at, once. The steps of parameters that have taken
# equally many are 0-dim looks at one vector, so that counting is one operation for all of them; and where that changes
# no result, it is none: the vector gets new contents, which are known.

MOST_COUNTED = {dtypes.float32: 1 << 24, dtypes.float64: 1 << 53}         # one more is the same number there


class Count:
    """A number in a tensor that is known on the host too, for as long as nothing else writes to the tensor."""

    def __init__(self, tensor, count):
        self.tensor, self.count = tensor, count
        self.version = version_of(tensor)

    def tick(self):
        """One more."""
        self.count = self.count + 1
        if may_refill(self.tensor):
            refill(self.tensor, min(self.count, MOST_COUNTED.get(self.tensor._spec.dtype, self.count)))
        else:
            self.tensor.add_(1)
        self.version = version_of(self.tensor)

    def holds(self):
        """Whether nothing else has written to the tensor."""
        return not self.tensor._storage.inference and self.version == version_of(self.tensor)


class Clock(Count):
    """The number of steps that some parameters have taken; it puts its tensors into their states."""

    def __init__(self, states, count, dtype, device):
        tensor = made_at_once(spec(dtype, (len(states),), None, as_device(device)), count)
        if tensor is None:
            tensor = full((len(states),), float(count), dtype=dtype, device=device)
        super().__init__(tensor, count)
        self.steps = tuple([self.tensor[i].detach() for i in range(len(states))])
        for state, step in zip(states, self.steps, strict=True):
            state["step"] = step


def version_of(tensor):
    """How often a tensor was written to; inference tensors do not know."""
    return -1 if tensor._storage.inference else tensor._version + tensor._storage.hidden


def count_in(step):
    """The number of steps in what a state holds: nothing yet, a tensor, or a number from an old checkpoint."""
    return 0 if step is None else int(step.item()) if isinstance(step, Tensor) else int(step)


def scalar_dtype(fused=False):
    """The dtype of the numbers that a state keeps for a whole parameter."""
    return dtypes.float64 if dtypes.default is dtypes.float64 and not fused else dtypes.float32

"""Optimizers that are made of a rule for one parameter, and the words that rules are written with.

Such an optimizer says two things: what the state of a parameter is before its first step (`start`), and how one step
changes it (`rule`, or `operation` where it is a single one), as the paper does. `ByRule.step` takes the rule to every
parameter that has a gradient. Nothing there looks at a value, so that all of it is recorded, and the recorder fuses it;
`foreach` and `fused` need no second copy of a rule, and are accepted without one.
"""
from itertools import chain

from ..autograd.modes import enable_grad, modes
from ..base.errors import here
from ..tensor.functions import full_like, view_as_real, zeros_like
from ..tensor.overrides import has_override
from ..tensor.tensor import Tensor
from ..trace.recording.record import current
from ._update import change
from .optimizer import Optimizer, _use_grad_for_differentiable
from .step_count import Clock, count_in, made_at_once, scalar_dtype


def all_params(groups):
    """The parameters of all groups, in order."""
    return list(chain.from_iterable(group["params"] for group in groups))


class ByRule(Optimizer):
    """An optimizer that changes one parameter after the other, each by the same rule."""

    counts = True             # its rule counts steps
    pairs = True              # to its rule, complex numbers are pairs of real ones
    operation = None          # the single operation (_update.py) that a step is, but for where `tensors` gives None

    @staticmethod
    def start(p, g, **options):
        """The state of a parameter `p` with gradient `g` before its first step; the count of steps excepted."""
        return {}

    @staticmethod
    def rule(p, g, state, t, **options):
        """Step number `t` of a parameter: change `p`, and what `state` holds, in place."""
        raise NotImplementedError("an optimizer says by `rule` what one step does, or by `operation`")

    @staticmethod
    def tensors(p, g, state, options):
        """The tensors of `operation`, the first of its arguments; None where this step goes by `rule`."""

    @staticmethod
    def numbers(t, options):
        """The other arguments of `operation`, which are the same for all parameters that take step number `t`."""

    @classmethod
    def step_one(cls, p, g, state, t, options):
        """Take one parameter step number `t` further."""
        tensors = cls.tensors(p, g, state, options) if cls.operation is not None else None
        if tensors is None:
            cls.rule(p, g, state, t, **options)
        else:
            change(cls.operation, tensors, cls.numbers(t, options))

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Change every parameter that has a gradient by one step; gives what `closure()` gave, if there is one."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        trace = current()
        outer, trace.site = trace.site, trace.site or here()         # all of it belongs to the line that called
        try:
            self._step_groups()
        finally:
            trace.site = outer
        return loss

    def _step_groups(self):
        for number, group in enumerate(self.param_groups):
            live = [p for p in group["params"] if p.grad is not None]
            if live:
                self._step_group(number, group, live)

    def _step_group(self, number, group, live):
        cls = self.__class__
        options = {name: value for name, value in group.items() if name != "params"}
        options["lr"] = as_number(options["lr"])
        states = [self._state_of(p, options) for p in live]
        plain = not options.get("maximize") and not options.get("differentiable")
        for t, indices in self._count(number, states, group, live[0].device) if cls.counts else \
                [(None, range(len(live)))]:
            numbers = None
            for i in indices:
                p, state = live[i], states[i]
                if not plain or cls.pairs and p._spec.dtype.is_complex:
                    advance(cls, p, p.grad, state, t, options)
                elif cls.operation is None or (tensors := cls.tensors(p, p.grad, state, options)) is None:
                    cls.rule(p, p.grad, state, t, **options)
                else:
                    if numbers is None:
                        numbers = cls.numbers(t, options)
                    change(cls.operation, tensors, numbers)

    def _state_of(self, p, options):
        """The state of a parameter, made now if it has none."""
        state = self.state.get(p)
        if not state:
            state = {"step": None} if self.counts else {}        # a Clock puts the tensor there
            state.update(self.__class__.start(p, p.grad, **options))
            if state:
                self.state[p] = state
        return state

    def _count(self, number, states, group, device):
        """Count one step for each of these states; gives (count, the indices of the states that have it) of each count.

        See Note [Step counts].
        """
        steps = [state.get("step") for state in states]
        turn = self._turns.get(number)
        if turn is None or len(turn[0]) != len(steps) or any(a is not b for a, b in zip(turn[0], steps)) \
                or not all(clock.holds() for clock, _ in turn[1]):
            turn = self._turns[number] = self._wind(states, steps, group, device)
        for clock, _ in turn[1]:
            clock.tick()
        return [(clock.count, indices) for clock, indices in turn[1]]

    def _wind(self, states, steps, group, device):
        """(the tensors of the steps, ((clock, the indices of its states), ...)) for these states."""
        fused = bool(group.get("fused"))
        dtype_and_device = scalar_dtype(fused), device if fused or group.get("capturable") else "cpu"
        self._clocks = [clock for clock in self._clocks if clock.holds()]
        clock_of = {id(step): clock for clock in self._clocks for step in clock.steps}
        found, turn = {}, []
        for i, step in enumerate(steps):
            clock = clock_of.get(id(step))
            found.setdefault(count_in(step) if clock is None else clock, []).append(i)
        for clock, indices in found.items():
            if isinstance(clock, Clock):
                if len(indices) == len(clock.steps):
                    turn.append((clock, tuple(indices)))
                    continue
                # The others rest: these go on with a clock of their own.
                going = {id(steps[i]) for i in indices}
                clock.steps = tuple([step for step in clock.steps if id(step) not in going])
                clock = clock.count
            turn.append((Clock([states[i] for i in indices], clock, *dtype_and_device), tuple(indices)))
            self._clocks.append(turn[-1][0])
        return tuple([state["step"] for state in states]), tuple(turn)


def advance(cls, p, g, state, t, options):
    """Take one parameter a step further by the rule of `cls`."""
    if options.get("maximize"):
        g = -g
    if options.get("differentiable"):
        # What autograd has kept of the last step's state stays as it is: this step writes to copies.
        for name, value in state.items():
            if isinstance(value, Tensor) and name != "step":
                state[name] = value.clone()
    if cls.pairs and p.is_complex():
        p, g = view_as_real(p), view_as_real(g)
        state = {name: view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value
                 for name, value in state.items()}
    cls.step_one(p, g, state, t, options)


def functional(cls, params, grads, states, state_steps=None, **options):
    """One step of each of `params` by the rule of `cls`: PyTorch's functions over lists.

    `states` maps the names in a state to lists. The counts in `state_steps` are looked at: a function cannot remember.
    Gives the states.
    """
    options["lr"] = as_number(options.get("lr"))
    found = []
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        state, t = {name: values[i] for name, values in states.items() if values}, None
        if state_steps is not None:
            state_steps[i] += 1
            t = count_in(state_steps[i])
        advance(cls, p, g, state, t, options)
        found.append(state)
    return found


# --- words that rules are written with -------------------------------------------------------------------------------


def ready(p, number):
    """`number` in the shape of a parameter `p`, there at once, if that changes no result. See Note [First steps] in
    step_count.py."""
    made = made_at_once(p._spec, number) if not has_override(p.__class__) else None
    return full_like(p, number) if made is None else made


def zeros_for(p):
    """Zeros in the shape of a parameter `p`, as a state has them before the first step."""
    made = made_at_once(p._spec, 0) if not has_override(p.__class__) else None
    return zeros_like(p) if made is None else made


def as_number(lr):
    """A learning rate as rules take it: a number, or a tensor without dimensions."""
    return lr.reshape(()) if isinstance(lr, Tensor) and lr.ndim else lr


def given(x):
    """Whether an option is set: a number other than zero, or a tensor, at which we do not look."""
    return isinstance(x, Tensor) or x != 0


def plus(a, b, factor):
    """a + factor * b, where b is about to be written."""
    if isinstance(factor, Tensor):
        return a.addcmul(b.clone() if modes.grad else b, factor)             # what autograd keeps outlives the writing
    return a.add(b, alpha=factor)


def descend(p, direction, rate):
    """p -= rate * direction."""
    if isinstance(rate, Tensor):
        p.addcmul_(direction, rate, value=-1)
    else:
        p.add_(direction, alpha=-rate)


def descend_by_quotient(p, direction, scale, rate):
    """p -= rate * direction / scale."""
    if isinstance(rate, Tensor):
        p.addcdiv_(direction * rate, scale, value=-1)
    else:
        p.addcdiv_(direction, scale, value=-rate)


def average_square(square, g, beta):
    """square = beta * square + (1 - beta) * g²."""
    if isinstance(beta, Tensor):
        square.lerp_(g * g, 1 - beta)
    else:
        square.mul_(beta).addcmul_(g, g, value=1 - beta)


# --- what constructors refuse ----------------------------------------------------------------------------------------


def check_lr(lr, words="Invalid learning rate"):
    """Refuse a learning rate that is negative, or a tensor of several."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, and this one has {lr.numel()}: give a group to each "
                         "parameter that needs its own")
    check_positive(lr, words)


def check_positive(x, words):
    """Refuse an option that is negative."""
    if not 0.0 <= x:
        raise ValueError(f"{words}: {x}" + "; it has to be at least 0" * words.startswith("Invalid"))


def check_betas(betas):
    """Refuse decay rates outside [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}; it is at least 0 and less than 1")


def check_implementations(fused, foreach, differentiable):
    """Refuse ways to compute a step that exclude each other in PyTorch."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`: give only one of them")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

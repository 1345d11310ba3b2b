"""What an optimizer's step shows, always: gradients of an earlier step, graphs that are kept, layers it was not given.

`before_step` and `after_step` stand around every step and look at a handful of things: of the first steps of an
optimizer after each, and later, when a mistake that is made in every step has long been found, now and then. What they
keep lies on gradients and here; an optimizer has a number, so that `compile` does not take it for state of the program.

Note [Stale gradients]: at the end of a step the first gradient of an optimizer is marked with its version (`_stepped`).
A backward that adds to it at that very version, with nothing written in between, has added to what was already used;
it notes so on the gradient (`_stale`, in autograd/engine.py). `zero_grad`, a new gradient, or any write in between
leave no such note.
"""
import collections
import itertools
import weakref

from ..autograd.engine import recent_roots
from ..base import observers
from ..base.errors import here, line_of
from ..base.op import door
from ..base.spec import CPU
from ..trace.finite import is_finite
from ..trace.record import current
from .finding import found, in_force, listens

FIRST_STEPS = 64              # of an optimizer, after each of which everything is looked at
STEPS_PER_LOOK = 8            # afterwards; what is not finite is looked for in every step
OLD_STEPS = 2                 # a graph is old when so many steps were taken since its backward
OLD_GRAPHS = 3                # so many old graphs of one optimizer are no accident
ROOTS_KEPT = 8                # of an optimizer's latest backwards, by weak references
SMALL_GRADIENT = 1 << 9       # elements: the first gradient that has no more is looked at after a step
OVERWRITES = ("zero_", "fill_", "copy_", "an item assignment")

taken = [0]                   # how many steps were taken, by all optimizers
own_looks = [0]               # more than 0 while watch itself looks at results
_numbers = itertools.count()
_records: dict = {}           # number of an optimizer → OptimizerRecord


class OptimizerRecord:
    """What is remembered of an optimizer: its steps, the latest backwards, the module whose parameters it was given.

    `looks`: whether what the last step has left is looked at before the next.
    """

    __slots__ = ("optimizer", "steps", "looks", "roots", "module", "told_graphs", "unseen")

    def __init__(self, optimizer):
        self.optimizer = weakref.ref(optimizer)
        self.steps, self.looks, self.told_graphs, self.unseen = 0, True, False, None
        self.roots = collections.deque(maxlen=ROOTS_KEPT)      # (weak reference to the root's node, step, site)
        self.module = None    # weak reference


def number_of(optimizer):
    """A number under which an optimizer is known here, as long as it lives."""
    for gone in [number for number, record in list(_records.items()) if record.optimizer() is None]:
        _records.pop(gone, None)                     # not by a finaliser: an interrupt that comes in there is lost
    number = next(_numbers)
    _records[number] = OptimizerRecord(optimizer)
    return number


def made(number, module, unseen):
    """An optimizer was made; `module` is the one whose parameters() it was given.

    `unseen` are (words, parameters) of what the module holds where it does not look.
    """
    record = _records[number]
    record.module = weakref.ref(module)
    record.unseen = unseen or None


def first_gradient(optimizer):
    """The gradient of the first parameter that has one."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if (g := p._grad) is not None:
                return g
    return None


def before_step(optimizer):
    """A step is about to be taken; gives what `after_step` is to be given."""
    record = _records.get(optimizer._watched)
    if record is None or record.optimizer() is not optimizer:     # a copy that somebody made of another's attributes
        return None
    if record.looks:
        g = first_gradient(optimizer)
        if g is not None and g._stale is not None:
            _tell_stale(optimizer, g)
        if record.unseen is not None:
            unseen, record.unseen = record.unseen, None
            _tell_unseen(optimizer, unseen)
    if (tell := observers.step_began) is not None:
        tell(optimizer)
    recording = (trace := current()).backward        # of what has run already; the step can then write in place
    if recording is not None and recording.large and not in_force:
        check_backward(trace, optimizer)
    return record


def after_step(optimizer, record):
    """A step was taken; `record` is what `before_step` gave."""
    if record is None:
        return
    taken[0] += 1
    record.steps = steps = record.steps + 1
    record.looks = steps < FIRST_STEPS or not steps % STEPS_PER_LOOK
    if record.looks:
        _note(optimizer, record)
    else:
        recent_roots.clear()
    if (tell := observers.step_ended) is not None:
        tell(optimizer)
    if (trace := current()).backward is not None and not in_force:
        check_backward(trace, optimizer)


def _note(optimizer, record):
    """Mark a gradient of the step that was taken, and see which graphs of earlier ones are still there."""
    g = first_gradient(optimizer)
    if g is not None:
        g._stepped = g._storage.version
    roots, steps = record.roots, record.steps
    while recent_roots:
        root, site = recent_roots.popleft()
        roots.append((root, steps, site))
    if len(roots) > OLD_GRAPHS and roots[0][0]() is None:
        roots.popleft()
    elif len(roots) == ROOTS_KEPT and not record.told_graphs:
        old = [(root(), site) for root, step, site in roots if step <= steps - OLD_STEPS and root() is not None]
        if len(old) >= OLD_GRAPHS:
            record.told_graphs = True
            from .holders import tell_old_graphs
            tell_old_graphs(old, steps)


def check_backward(trace, optimizer):
    """Look at the loss of the latest backward, and at one gradient, if they are computed; if all is well, forget it.

    What is not a number in the middle of a backward is so in all that comes behind it, in the first layers too.
    """
    recording = trace.backward
    root = recording.root()
    if root is not None:
        value = root._storage.value
        if value.trace is not None:
            return
        if root._spec.numel == 1 and not is_finite(value):
            trace.backward = None
            door.noticed("tell_recorded", recording, root, here())
            return
    g = _small_gradient(optimizer)
    if g is not None:
        value = g._storage.value
        if value.trace is not None:
            return
        if not is_finite(value):
            trace.backward = None
            door.noticed("tell_recorded", recording, g, here())
    trace.backward = None


def _small_gradient(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            if (g := p._grad) is not None and (spec := g._spec).numel <= SMALL_GRADIENT and spec.device is CPU:
                return g if g._storage is not None else None
    return None


def _tell_stale(optimizer, g):
    """The gradient `g` was already used by an earlier step, and has been added to since."""
    version, site = g._stale
    passes, declared = g._passes, optimizer.passes_per_step
    g._stale = None
    writer = g._storage.writer
    if g._storage.version != version and writer is not None and writer[1] in OVERWRITES:
        return
    if declared is not None and passes <= declared:
        return
    much = f"more than the {declared} that accumulate({declared}) declares" if declared is not None else \
        "those of the last steps among them"
    found("stale-gradients", f"the gradients are sums over {passes} backward passes, {much}: nothing set them to zero "
          "after the last step()", here(), [("they were added to by backward() at", site)],
          "every step goes along all gradients since the last zero_grad()",
          "call optimizer.zero_grad() before backward(); where they are meant to add up over steps, declare it with "
          "optimizer.accumulate(n)")


def _tell_unseen(optimizer, unseen):
    """Layers that the optimizer's module holds in a plain list have gradients now, so they are meant to be trained."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for words, parameters in unseen:
        waiting = [p for p in (ref() for ref in parameters) if p is not None and p._grad is not None
                   and id(p) not in own]
        if waiting and listens("plain-container"):
            found("plain-container", f"{words}, so its {len(waiting)} parameters have gradients and are not among "
                  "those of the optimizer", waiting[0]._site, [("step() was called at", here())],
                  "they keep the values they were made with; to(), eval() and state_dict() pass them by as well",
                  "use the container that is named, or give the optimizer these parameters too")


def is_recording():
    """Whether `compile` records: then nothing may be looked at, or hung up, that the program does not."""
    return current().reader is not None


def module_of(optimizer):
    """The module whose parameters() an optimizer was given, if that is known and it is still there."""
    record = _records.get(optimizer._watched)
    return record.module() if record is not None and record.module is not None else None


def words_for(parameters, module):
    """The names of parameters in their module, and their number: `head.weight, head.bias and 3 more`."""
    names = {id(p): name for name, p in module.named_parameters()} if module is not None else {}
    said = [names.get(id(p)) or f"a parameter {list(p.shape)} made at {line_of(p._site)}" for p in parameters[:3]]
    more = len(parameters) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")

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
from ..base.errors import here, line_of
from ..base.op import door
from ..trace.recording.record import current
from .finding import found, listens
from .holders import tell_old_graphs

# `before_step` and `after_step` are for optimizers, which know this module alone.
from .step_hooks import OptimizerRecord, after_step, before_step, records, tellers  # noqa: F401

OLD_STEPS = 2                 # a graph is old when so many steps were taken since its backward
OLD_GRAPHS = 3                # so many old graphs of one optimizer are no accident
ROOTS_KEPT = 8                # of an optimizer's latest backwards, by weak references
OVERWRITES = ("zero_", "fill_", "copy_", "an item assignment")

own_looks = [0]               # more than 0 while watch itself looks at results
_numbers = itertools.count()


def number_of(optimizer):
    """A number under which an optimizer is known here, as long as it lives."""
    for gone in [number for number, record in list(records.items()) if record.optimizer() is None]:
        records.pop(gone, None)                     # not by a finaliser: an interrupt that comes in there is lost
    number, record = next(_numbers), OptimizerRecord()
    record.optimizer, record.module = weakref.ref(optimizer), None
    record.steps, record.looks, record.told_graphs, record.unseen = 0, True, False, None
    record.roots = collections.deque(maxlen=ROOTS_KEPT)        # (weak reference to the root's node, step, site)
    records[number] = record
    return number


def made(number, module, unseen):
    """An optimizer was made; `module` is the one whose parameters() it was given.

    `unseen` are (words, parameters) of what the module holds where it does not look.
    """
    record = records[number]
    record.module = weakref.ref(module)
    record.unseen = unseen or None


def first_gradient(optimizer):
    """The gradient of the first parameter that has one."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if (g := p._grad) is not None:
                return g
    return None


def _look_before(optimizer, record):
    """See whether gradients of the last step were added to, and tell of layers that the optimizer was not given."""
    g = first_gradient(optimizer)
    if g is not None and g._stale is not None:
        _tell_stale(optimizer, g)
    if record.unseen is not None:
        unseen, record.unseen = record.unseen, None
        _tell_unseen(optimizer, unseen)


def _look_after(optimizer, record):
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
            tell_old_graphs(old, steps)


def _tell_not_finite(bad):
    """`bad` is (recording, tensor) of `find_nonfinite`."""
    door.noticed("tell_recorded", *bad, here())


tellers[:] = _look_before, _look_after, _tell_not_finite


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
    record = records.get(optimizer._watched)
    return record.module() if record is not None and record.module is not None else None


def words_for(parameters, module):
    """The names of parameters in their module, and their number: `head.weight, head.bias and 3 more`."""
    names = {id(p): name for name, p in module.named_parameters()} if module is not None else {}
    said = [names.get(id(p)) or f"a parameter {list(p.shape)} made at {line_of(p._site)}" for p in parameters[:3]]
    more = len(parameters) - len(said)
    return ", ".join(said) + (f" and {more} more" if more else "")

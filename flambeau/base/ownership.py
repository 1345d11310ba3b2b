"""Who holds what: the one module that counts references.

Whether memory may be written over, and whether a result is still wanted, depends on who else can see it, and only the
interpreter knows. It keeps exact count of containers: a list, a table or an attribute owns one reference to each thing
in it. It does not of names: since Python 3.14 a variable or an argument may borrow the caller's reference, and
how many a line takes is for the compiler to choose. So

- a thing is asked about where it stands (`others(values)`, or an attribute of its owner), and C code takes it from
  there to the counter. No variable of ours comes in between;
- only containers count as ours. A variable that is in the way after all makes the answer "held": something is copied
  that need not be. No way to compile a line makes it "free" while there is a reader, since a caller that lends a
  reference owns one;
- on import every way of asking is tried on things whose holders are known, and where the numbers are others, Flambeau
  refuses to run.
"""
import sys
from functools import partial
from operator import attrgetter

from .counting import count as _count, count_at, counts

TESTED_PYTHONS = "3.11 to 3.15"
_value, _keeper = attrgetter("value"), attrgetter("_keeper")
_array, _memory = attrgetter("array"), attrgetter("_memory")
_grad = [attrgetter(path) for path in ("_grad", "_grad._storage", "_grad._storage.value", "_grad._storage.value.array")]
_carried = 1                  # references that C code takes to carry a thing to the counter; measured by `calibrate`
_alone = 2                    # what `count_at` says of an attribute that its owner alone holds; measured as well
RESULT = INPUT = 0            # the `counts` of Values that the list of a trace holds, and the list and the table


def others(items, ours=1):
    """For each thing in `items`, how many hold it besides `ours` containers, of which `items` is one."""
    known = ours + _carried
    return [n - known for n in map(_count, items)]


# --- a trace: a list of Values, and a table of those that were ready before -----------------------------------------
#
# `counts(values)` gives, for each Value in the list of a trace, a number to compare with RESULT or INPUT: one above it
# says that the Value is held outside of the trace. (Every run asks for it, and `others` takes three times as
# long; so it stands in counting.py, which is part of the compiled core.)


def only_traced(values, slots, slot):
    """Whether nothing outside of the trace holds the Value in `slot`."""
    return others(values[slot:slot + 1], 2 + (values[slot] in slots)) == [0]


# --- memory ---------------------------------------------------------------------------------------------------------

def owns_memory(value):
    """Whether nothing but the Value holds its array, or the bytes behind it, and they may be written."""
    seen = value._memory is not None
    if seen and count_at(_memory, value) > _alone or not value.may_be_written():
        return False
    return count_at(_array, value) <= _alone + (seen and value._memory.base is value.array)


def shares_value(storage):
    """Whether anything but the storage holds its Value."""
    return count_at(_value, storage) > _alone


def outside_holds_keeper(storage):
    """Whether anything outside holds the array whose memory a storage looks at.

    Ours are the storage, the Value's array (which is it, or stands on it), and the Value's bytes.
    """
    value = storage.value
    seen = value._memory is not None and value._memory is not value.array and value._memory.base is storage._keeper
    return count_at(_keeper, storage) > _alone + 1 + seen


def may_donate(values):
    """Whether only their storages and the caller's tuple see the memory of the Values in this list."""
    return not any(others(values, 3)) and not any(others(map(_array, values)))


def may_recycle_grad(tensor):
    """Whether the memory of a tensor's gradient is seen through that tensor alone."""
    return not any(count_at(get, tensor) > _alone for get in _grad)


def is_unused(table, key, entries):
    """Whether what stands under `key` is held by `entries` entries of tables and by nothing else."""
    return count_at(table.__getitem__, key) <= _alone + entries - 1


# --- on import ------------------------------------------------------------------------------------------------------

class _Thing:
    """Stands for a Value, a Storage, a Tensor and an array."""

    _memory = None

    def __init__(self, **parts):
        vars(self).update(parts)

    def may_be_written(self):
        return True


def _results(hold):
    values = [_Thing(), _Thing()]
    hold(values[1])
    return counts(values)[1] > RESULT


def _inputs(hold):
    slots = {_Thing(): 0}
    values = list(slots)
    hold(values[0])
    return counts(values)[0] > INPUT


def _traced(hold):
    values = [_Thing()]
    hold(values[0])
    return not only_traced(values, {}, 0)


def _traced_input(hold):
    values = [_Thing()]
    slots = dict.fromkeys(values, 0)
    hold(values[0])
    return not only_traced(values, slots, 0)


def _own_array(hold):
    value = _Thing(array=_Thing())
    hold(value.array)
    return not owns_memory(value)


def _own_bytes(hold):
    value = _Thing(array=_Thing())
    value._memory = _Thing(base=value.array)
    hold(value._memory)
    return not owns_memory(value)


def _storage(hold):
    storage = _Thing(value=_Thing())
    hold(storage.value)
    return shares_value(storage)


def _outside(hold):
    storage = _Thing(_keeper=_Thing())
    storage.value = _Thing(array=storage._keeper)
    hold(storage._keeper)
    return outside_holds_keeper(storage)


def _donated(hold):
    storage = _Thing(value=_Thing(array=_Thing()))
    given = (storage.value,)
    hold(given[0])
    return not may_donate([given[0]])


def _donated_array(hold):
    storage = _Thing(value=_Thing(array=_Thing()))
    given = (storage.value,)
    hold(given[0].array)
    return not may_donate([given[0]])


def _gradient(get, hold):
    tensor = _Thing(_grad=_Thing(_storage=_Thing(value=_Thing(array=_Thing()))))
    hold(get(tensor))
    return not may_recycle_grad(tensor)


def _spec(hold):
    table = {0: _Thing()}
    hold(table[0])
    return not is_unused(table, 0, 1)


_CASES = (_results, _inputs, _traced, _traced_input, _own_array, _own_bytes, _storage, _outside, _donated,
          _donated_array, *(partial(_gradient, get) for get in _grad), _spec)


def _lent(thing, items):
    """How many hold a thing besides a list, if the caller has lent it to us."""
    return others(items)[0]


def calibrate():
    """Try every question on things that nothing else holds, on the same held once more, and on what was only lent."""
    global _carried, _alone, RESULT, INPUT
    if "free-threading" in sys.version:
        _refuse("this is a free-threaded build, in which references are not counted exactly and threads take no turns. "
                "Recording depends on both: use the ordinary build of this version")
    if _count is None:
        _refuse("it does not count references, by which Flambeau knows what memory may be written over: use CPython")
    _carried = next(map(_count, [_Thing()])) - 1
    _alone = count_at(_array, _Thing(array=_Thing()))
    RESULT = counts([_Thing()])[0]
    INPUT = RESULT + 1
    wrong = []
    for case in _CASES:
        kept: list = []
        name = getattr(case, "__name__", "_gradient")[1:]
        wrong += [f"{name}: held where nobody holds it"] * bool(case(id))
        wrong += [f"{name}: free where somebody holds it"] * (not case(kept.append))
    thing = _Thing()
    wrong += ["what a variable holds is not counted"] * (_lent(thing, [thing]) < 1)
    if wrong:
        _refuse("references are counted in another way here than it knows of, and by them it tells what memory may be "
                f"written over ({'; '.join(wrong)}). Use CPython {TESTED_PYTHONS}, and please report this version")


def _refuse(reason):
    version = sys.version.split(" (")[0]
    raise ImportError(f"Flambeau cannot run on this Python, {sys.implementation.name} {version}: {reason}.")


calibrate()

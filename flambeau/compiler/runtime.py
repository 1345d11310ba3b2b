"""What the source of a replay calls: storages and tensors made anew, random numbers drawn, checks of data repeated."""
from ..tensor.drawing import filled
from ..trace import on_host
from ..trace.recording.instructions import needed_for, slots_made
from ..trace.value import Value
from .bound import ChecksBase
from .gradient import is_live
from .moving import moved_code
from .recording import Noted, evaluate, noted_in

MAXIMUM_REMEMBERED_BYTES = 1 << 20        # of checked contents


class Miss:
    """What a replay gives instead of a result: guard number `guard` does not hold, and nothing was done."""

    __slots__ = ("guard",)

    def __init__(self, guard):
        self.guard = guard


REFUSED = Miss(-1)            # an operation would refuse the data: the ordinary call will say how


def count_hidden_writes(storage, count, looks):
    """`count` writes through `.data`, by these looks at the storage; see Note [Writes through .data]."""
    for number in range(count):
        storage.version += 1
        storage.hide_write(*looks[min(number, len(looks) - 1)])


def facts_of(tensor):
    """What a replay needs to know to make a tensor like this one."""
    cut = tensor._cut
    if tensor.grad_fn is not None and not is_live(tensor):
        cut = ("flambeau.compile, since the graph was used up inside the function and a replay makes none",
               tensor._site)
    return (type(tensor), tensor._spec, tensor._offset, tensor._site, cut, tensor._requires_grad, tensor._view_of)


def new_record(cls, fields):
    made = cls.__new__(cls)
    made.__dict__.update(fields)
    return made


class Draws:
    """Random numbers, drawn again in the order in which the call drew them."""

    def __init__(self, draws):
        self.draws = draws

    def __call__(self):
        return [Value.of(filled(draw, spec), spec) for draw, spec in self.draws]


class Checks(ChecksBase):
    """The checks of data that operations made at the call, made again."""

    def __init__(self, checks, code, fixed, overwritten=()):
        """`fixed` are Values by slot, `overwritten` the slots of inputs that the call writes over."""
        self.checks, self.code, self.fixed = checks, code, fixed
        self.made = slots_made(code).keys()
        self.asked = [n.slot for _, given in checks for n in noted_in(given)]
        self.needs = [slot for slot in self.asked if slot not in self.made]
        _, live = needed_for(self.made & self.asked, code)
        self.needs += sorted(live - self.made - set(self.needs))
        self.remembers = not set(overwritten).intersection(self.needs)    # or what is donated would have another holder
        self.last, self.code_moved, self.noted_moved = None, {}, {}

    def begin(self, moving):
        """Be told what of it lies elsewhere at every call: see Note [Moving arguments]."""
        number_of = {storage: number for number, storage in enumerate(moving.names)}
        self.code_moved = moving.places(range(len(self.code)), 0)
        self.noted_moved = {noted: number_of[storage] for noted, storage in moving.noted.items()}

    def look_further_on(self, storages, numbers):
        """Whether all of them hold for the contents of these storages, so many bytes further on."""
        values = [storage.value.ready() for storage in storages]
        return self.hold(dict(zip(self.slots, values, strict=True)), numbers)

    def look(self, storages):
        """Whether all of them hold for the contents of these storages, which may be remembered."""
        now = [(s.value.ready(), s.version) for s in storages]
        if not self.hold(dict(zip(self.slots, [value for value, _ in now], strict=True))):
            return False
        small = self.remembers and sum(value.spec.nbytes for value, _ in now) < MAXIMUM_REMEMBERED_BYTES
        self.last = now if small else None
        return True

    def hold(self, values, numbers=()):
        """Whether all of them hold for these Values by slot."""
        try:
            self.make(self.fixed | values, numbers)
        except Exception:                                    # the ordinary call will refuse it, in its own words
            return False
        return True

    def make(self, values, numbers=()):
        """Make them, for Values by slot. `numbers`: how many bytes further on lies what moves."""
        code, asked = self.code, [s for s in self.asked if s in self.made]
        if asked and self.code_moved:
            code = moved_code(code, self.code_moved, numbers)
        made = evaluate(code, values, asked)
        for op, given in self.checks:
            op.verify(*[[self._array(n, values, made, numbers) for n in g] if g.__class__ is list else
                        self._array(g, values, made, numbers) for g in given])

    def _array(self, seen, values, made, numbers):
        if seen.__class__ is not Noted:
            return seen
        value, offset = values[seen.slot] if seen.slot in values else made[seen.slot], seen.offset
        if seen in self.noted_moved:
            offset += numbers[self.noted_moved[seen]] // seen.spec.dtype.itemsize
        return on_host.read(value, seen.spec, offset)



"""Arguments that begin elsewhere in their memory at every call, as the next minibatch `x[row:row + 64]` does.

Note [Moving arguments]: where an argument begins is guarded by the first recording that finds it at the beginning of
its memory, as nearly all do. From then on, as soon as another call brings it from elsewhere, it *moves*: how many bytes
further on than recorded it begins is a number of the replay, one for each Storage, and all that the recording reads or
writes there lies so much further on. So two arguments that look at one memory have to move together, and lie to each
other as they did.

That is so for what was reached through the arguments alone, since everything else in that memory stays where it is.
What tells where a tensor begins (`storage_offset()`), or looks at its memory from the beginning (`as_strided` with an
offset) has it guarded, and so has memory whose contents go elsewhere as a whole, or are looked at by the head of a
recording.

Note [Moving slices]: `x[row:row + 64]`, where `row` is a number that changes from call to call, moves in the same
way, as long as it stays within `x` and as long as it is. But `x` itself stays where it is, and what is read of its
memory may have come from the slice or from `x`. That is found out by comparing the recording with an earlier one of
the same instructions that would fit this call but for the row: an operand that lies as much further on as the slice
does has come from it, and one that lies where it did has not. Until there is such a recording the row is guarded, and
so it is where that memory is written, or seen by what the call gives back.
"""
from ..autograd.edges import requires
from ..autograd.modes import modes
from ..base.spec import CPU
from ..tensor.tensor import Tensor
from ..trace.recording.instructions import Instruction, needed_for
from ..trace.recording.update import update
from .recording import noted_in
from .traced import TRACED, TracedInt, plain

DRAWN_BYTES = 16              # what other devices draw for a tensor may depend on where it lies in so many
# What tells where in its memory a tensor begins, or looks at it from there: names of attributes and operations.
ASK_OFFSET = frozenset("""storage_offset as_strided as_strided_ as_strided_copy as_strided_scatter set_ _base storage
    untyped_storage typed_storage data_ptr is_set_to view_as_complex __dlpack__ _offset""".split())


class Moving:
    """The Storages of a recording that move, those of `arguments` or of slices. `names`: how the source of the replay
    calls the bytes; `operands`: {(instruction, operand): Storage} of the whole code, `slots`: {slot: Storage} of their
    contents, `noted`: {Noted: Storage} of what checks look at. `seen` is what later recordings are compared with, as
    this one is with `others`, those that would fit this call but for where slices begin."""

    def __init__(self, diff, head, others):
        self.diff, self.head = diff, head
        self.code = diff.trace.code + (diff.gradient.runner.code if diff.gradient is not None else [])
        self.seen = Seen(diff, self.code)
        self.sliced = {one.storage: one.further for one in reversed(diff.journal.slices)}
        self.evidence = {storage: found for slot, storage in diff.read if storage in self.sliced for other in others
                         if (found := self.seen.moved_since(other, slot)) is not None}
        arguments = self._candidates()
        found = arguments + [storage for storage in self.evidence if storage not in diff.journal.fixed
                             and storage.device.backend.adds_to_addresses]
        self._follow(found)
        while stay := self._staying(found):                  # one that stays may keep another one from moving
            found = [storage for storage in found if storage not in stay]
            self._follow(found)
        self.names = {storage: self.sliced.get(storage) or f"o{number}" for number, storage in enumerate(found)}
        self.arguments = {storage: name for storage, name in self.names.items() if storage not in self.sliced}
        self.alignment = {storage: self._alignment(storage) for storage in found}

    def _candidates(self):
        """Storages that are seen through arguments alone, of which one begins elsewhere than at the beginning, or has
        done so at another call."""
        diff, tensors = self.diff, {}
        for tensor, path in diff.journal.tensors.values():
            tensors.setdefault(tensor._storage, []).append((tensor, path))
        return [storage for storage, seen in tensors.items()
                if all(id(tensor) in diff.journal.loose for tensor, _ in seen) and storage not in self.sliced
                and storage not in diff.journal.fixed
                and storage.device.backend.adds_to_addresses
                and any(tensor._offset or beginning(path) in diff.capture.follower.varying for tensor, path in seen)]

    def _follow(self, found):
        """Note where the contents of the Storages `found` go, and who reads them."""
        self.operands = {}
        self.slots = slots = {slot: storage for slot, storage in self.diff.read if storage in found}
        for index, one in enumerate(self.code):
            for operand in range(len(one.offsets)):
                storage = slots.get(one.slots[operand])
                if storage is not None and (storage not in self.evidence
                                            or (index, operand) in self.evidence[storage][0]):
                    self.operands[index, operand] = storage
            if one.entry.op is update and one.slots[0] in slots:
                slots[one.first] = slots[one.slots[0]]
        noted = [seen for _, given in self.diff.early for seen in noted_in(given)]
        self.noted = {seen: slots[seen.slot] for number, seen in enumerate(noted) if seen.slot in slots
                      and (slots[seen.slot] not in self.evidence or number in self.evidence[slots[seen.slot]][1])}

    def _staying(self, found):
        """Those of the Storages `found` that cannot move."""
        diff, slots, stay = self.diff, self.slots, set()

        def moves(origin, what):
            return slots.get(what) if origin == "made" else what if origin == "entry" and what in found else None
        for storage, source, *_ in diff.stored:
            origin = moves(*source)
            if origin is not (storage if storage in found else None):
                stay |= {storage, origin}
            if storage in diff.hidden or storage.device is not CPU or storage in self.sliced:
                stay.add(storage)
        stay |= {tensor._storage for tensor in diff.new_tensors.values() if tensor._storage in self.sliced}
        stay |= {moves(*source) for source in diff.new_storages.values()}
        if diff.gradient is not None:
            stay |= {slots[slot] for slot, *_ in diff.gradient.gives if slot in slots}
        stay |= {slots[one.slots[0]] for one in self.code if one.entry.op is update and one.slots[0] in slots
                 and one.slots[0] == one.slots[1]}           # whether they overlap decides how it is done
        looked = needed_for([n.slot for _, given in diff.late for n in noted_in(given)], diff.trace.code)[1]
        stay |= {slots[slot] for slot in looked if slot in slots}
        if self.head is not None:
            stay |= {slots[slot] for slot in self.head.reads if slot in slots}
        return stay.intersection(found)

    def _alignment(self, storage):
        """What the bytes have to be a multiple of."""
        sizes = [tensor._spec.dtype.itemsize for tensor, _ in self.diff.journal.tensors.values()
                 if tensor._storage is storage]
        sizes += [tensor._spec.dtype.itemsize for tensor in self.diff.new_tensors.values()
                  if tensor._storage is storage]
        sizes += [self.code[index].entry.input_specs[operand].dtype.itemsize
                  for (index, operand), other in self.operands.items() if other is storage]
        return max(sizes) if storage.device is CPU else DRAWN_BYTES

    def places(self, indices, first):
        """{(instruction, operand): place of the number} for the instructions at these `indices`, where the numbers of
        the Storages stand from place `first` on."""
        at = {index: number for number, index in enumerate(indices)}
        number_of = {storage: first + number for number, storage in enumerate(self.names)}
        return {(at[index], operand): number_of[storage] for (index, operand), storage in self.operands.items()
                if index in at}


class MovingSlice:
    """A slice that was cut at a number that may change: of the memory `storage` of the tensor at `path`, `begins` bytes
    into it. It lies so many bytes `further` on as the line of that name says."""

    __slots__ = ("storage", "path", "begins", "further", "itemsize")

    def __init__(self, view, path, further):
        self.storage, self.path, self.further = view._storage, path, further
        self.itemsize = view._spec.dtype.itemsize
        self.begins = view._offset * self.itemsize


def slice_of(follower, thing, key):
    """`thing[key]`, for a tensor that was there before, if it is a slice that may move; else None. What says that it
    lies within the tensor and is as long as it was becomes a guard. See Note [Moving slices]."""
    parts, journal = key if type(key) is tuple else (key,), follower.journal
    if not any(type(bound) is TracedInt for part in parts if type(part) is slice for bound in bounds_of(part)) \
            or type(thing) is not Tensor or id(thing) not in journal.tensors or requires(thing) or modes.levels \
            or len(parts) > thing.ndim or not follower.number_log.writes() or journal.ahead is not None:
        return None
    further, cut = [], []
    for size, stride, part in zip(thing.shape, thing.stride(), parts, strict=False):
        if type(part) is int or type(part) is slice and TRACED.isdisjoint(map(type, bounds_of(part))):
            cut.append(part)
            continue
        if type(part) is not slice or part.step is not None \
                or not {type(part.start), type(part.stop)} <= {int, TracedInt}:
            return None
        length = plain(part.stop - part.start)               # a guard, as what is asked here
        if not (part.start >= 0 and part.stop <= size and length > 0):
            return None
        low = part.start._value if type(part.start) is TracedInt else part.start
        cut.append(slice(low, low + length))
        if type(part.start) is TracedInt:
            further.append((part.start - low) * (stride * thing._spec.dtype.itemsize))
    view = thing[tuple(cut) if type(key) is tuple else cut[0]]
    if further:
        total = further[0] if len(further) == 1 else sum(further[1:], further[0])
        journal.slices.append(MovingSlice(view, journal.path(thing), total._name))
    return view


def bounds_of(part):
    """The numbers of a slice."""
    return part.start, part.stop, part.step


class Seen:
    """What a recording read, and where: to be compared with a later one."""

    def __init__(self, diff, code):
        slot_of = {storage: slot for slot, storage in diff.read}
        self.code = [(one.entry, one.slots, one.offsets) for one in code] if diff.journal.slices else []
        self.noted = [(n.slot, n.spec, n.offset) for _, given in diff.early for n in noted_in(given)]
        self.slices = [(slot_of.get(one.storage), one.begins) for one in diff.journal.slices]

    def moved_since(self, other, slot):
        """({(instruction, operand)}, {number of a Noted}) of what has moved with the slices of the contents in a slot
        since the recording `other`; None where that cannot be told."""
        if slot is None or [one[:2] for one in self.code] != [one[:2] for one in other.code] \
                or [one[:2] for one in self.noted] != [one[:2] for one in other.noted] \
                or [one[0] for one in self.slices] != [one[0] for one in other.slices]:
            return None
        by = {now[1] - then[1] for now, then in zip(self.slices, other.slices, strict=True) if now[0] == slot}
        if len(by) != 1 or by == {0}:
            return None
        operands, noted = set(), set()
        pairs = [((index, operand), (now - then) * entry.input_specs[operand].dtype.itemsize, operands)
                 for index, (entry, slots, offsets) in enumerate(self.code)
                 for operand, (now, then) in enumerate(zip(offsets, other.code[index][2], strict=True))
                 if slots[operand] == slot]
        pairs += [(number, (now[2] - then[2]) * now[1].dtype.itemsize, noted)
                  for number, (now, then) in enumerate(zip(self.noted, other.noted, strict=True)) if now[0] == slot]
        for at, further, found in pairs:
            if further in by:
                found.add(at)
            elif further:
                return None
        return operands, noted


def beginning(path):
    """How a Follower calls where in memory the tensor at `path` begins, among what varies."""
    return f"{path}.storage_offset()"


def moved_code(code, moved, numbers):
    """A copy of the instructions, where operands lie as many bytes further on as `moved`, {(instruction, operand):
    place}, and the `numbers` there say."""
    code = list(code)
    for (index, operand), at in moved.items():
        one = code[index]
        offsets = list(one.offsets)
        offsets[operand] += numbers[at] // one.entry.input_specs[operand].dtype.itemsize
        code[index] = Instruction.of(one.entry, one.slots, tuple(offsets), one.params, one.first, one.site)
    return code


def moving_parts(code, moved):
    """The instructions as the parts of a key of Note [Moving offsets] in trace/running/key.py, where what is `moved`
    moves; nothing where that is nothing."""
    parts, places = [], {}
    for index, one in enumerate(code if moved else ()):
        offsets = []
        for operand, offset in enumerate(one.offsets):
            if (index, operand) in moved:
                place = one.slots[operand], offset, one.entry.input_specs[operand]
                offset = places.setdefault(place, -1 - len(places))
            offsets.append(offset)
        parts.append((one.entry, one.slots, tuple(offsets)))
    return parts


def moves_alike(parts, moved):
    """Whether the `parts` of a key say of all that is `moved` that it moves, and by one number for each negative one:
    operands that lay in the same place when the key was made share it, be it a slice and what stays."""
    numbers = {}
    for index, (_, _, offsets) in enumerate(parts):
        for operand, offset in enumerate(offsets):
            number = moved.get((index, operand))
            if offset >= 0 and number is not None or offset < 0 and numbers.setdefault(offset, number) != number:
                return False
    return True

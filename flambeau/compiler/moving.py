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
"""
from ..base.spec import CPU
from ..trace.recording.instructions import Instruction, needed_for
from ..trace.recording.update import update
from .recording import noted_in

DRAWN_BYTES = 16              # what other devices draw for a tensor may depend on where it lies in so many
# What tells where in its memory a tensor begins, or looks at it from there: names of attributes and operations.
ASK_OFFSET = frozenset("""storage_offset as_strided as_strided_ as_strided_copy as_strided_scatter set_ _base storage
    untyped_storage typed_storage data_ptr is_set_to view_as_complex __dlpack__ _storage _offset""".split())


class Moving:
    """The Storages of the arguments of a recording that move. `names`: how the source of the replay calls the bytes;
    `operands`: {(instruction, operand): Storage} of the whole code, `slots`: {slot: Storage} of their contents."""

    def __init__(self, diff, head):
        self.diff, self.head = diff, head
        self.code = diff.trace.code + (diff.gradient.runner.code if diff.gradient is not None else [])
        found = self._candidates()
        self._follow(found)
        while stay := self._staying(found):                  # one that stays may keep another one from moving
            found = [storage for storage in found if storage not in stay]
            self._follow(found)
        self.names = {storage: f"o{number}" for number, storage in enumerate(found)}
        self.alignment = {storage: self._alignment(storage) for storage in found}

    def _candidates(self):
        """Storages that are seen through arguments alone, of which one begins elsewhere than at the beginning, or has
        done so at another call."""
        diff, tensors = self.diff, {}
        if diff.journal.asks_offset:
            return []
        for tensor, path in diff.journal.tensors.values():
            tensors.setdefault(tensor._storage, []).append((tensor, path))
        return [storage for storage, seen in tensors.items()
                if all(id(tensor) in diff.journal.loose for tensor, _ in seen)
                and storage.device.backend.adds_to_addresses
                and any(tensor._offset or beginning(path) in diff.capture.follower.varying for tensor, path in seen)]

    def _follow(self, found):
        """Note where the contents of the Storages `found` go, and who reads them."""
        self.operands = {}
        self.slots = slots = {slot: storage for slot, storage in self.diff.read if storage in found}
        for index, one in enumerate(self.code):
            for operand in range(len(one.offsets)):
                if one.slots[operand] in slots:
                    self.operands[index, operand] = slots[one.slots[operand]]
            if one.entry.op is update and one.slots[0] in slots:
                slots[one.first] = slots[one.slots[0]]

    def _staying(self, found):
        """Those of the Storages `found` that cannot move."""
        diff, slots, stay = self.diff, self.slots, set()

        def moves(origin, what):
            return slots.get(what) if origin == "made" else what if origin == "entry" and what in found else None
        for storage, source, *_ in diff.stored:
            origin = moves(*source)
            if origin is not (storage if storage in found else None):
                stay |= {storage, origin}
            if storage in diff.hidden or storage.device is not CPU:
                stay.add(storage)
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

"""How the accumulators of the threads that share a row become one: halves onto halves, always in the same order."""
from ..ir import BYTES_OF_TYPE
from .reductions import ReducingWriter, type_of
from .writer import TextScope


class FoldingWriter(ReducingWriter):
    """A Writer of rows, of which the thread that runs is number `self.thread`.

    `self.room` is how many bytes of shared memory are needed to fold, and `self.boxes` how many words for results."""

    def __init__(self, *given):
        super().__init__(*given)
        self.room = self.boxes = 0

    def _shared_rooms(self):
        """Declare the shared memory that is needed."""
        if self.room:
            self._line(self.d.shared_arrays(self.d.types["f64"], ("room", -(-self.room // 8)), ("box", self.boxes)))

    def _fold(self, number, one, accs):
        """All lanes of every accumulator made one, which all threads of the row then know."""
        s = self.schedule
        if not one.accs:
            return
        folded = [(reduction, type_of(reduction, e), self._fold_chunks(reduction, type_of(reduction, e), mine))
                  for (reduction, e), mine in zip(one.accs, accs, strict=True)]
        if s.abreast:
            folded = self._fold_abreast(folded)
        elif s.group > self.d.warp:
            folded = self._fold_block(folded)
        else:
            folded = [(reduction, type, self._fold_group(reduction, type, mine, s.group))
                      for reduction, type, mine in folded]
            if s.group > 1:
                folded = [(reduction, type, self._shuffled_parts("from", type, acc, 0, s.group))
                          for reduction, type, acc in folded]
        for j, (reduction, _, acc) in enumerate(folded):
            self._hold(number, j, reduction, [acc])

    # --- of one thread

    def _fold_chunks(self, reduction, type, chunks):
        """The accumulators of several chunks, lane by lane."""
        many = 1 << (len(chunks) - 1).bit_length()
        chunks = [*chunks, *[None] * (many - len(chunks))]    # of a short row the last are empty
        while many > 1:
            many //= 2
            chunks = [[self._joined(reduction, type, a, b) for a, b in zip(low, high, strict=True)] if high else low
                      for low, high in zip(chunks[:many], chunks[many:], strict=True)]
        return chunks[0]

    def _fold_lanes(self, reduction, type, lanes):
        """The neighbouring lanes of a thread."""
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [self._joined(reduction, type, a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    # --- of a warp

    def _shuffled(self, how, type, name, by, width):
        return self._put(type, self.d.shuffle(how, type, name, by, width))

    def _shuffled_parts(self, how, type, acc, by, width):
        """The accumulator of another thread."""
        return tuple(self._shuffled(how, part_type, part, by, width) for part, part_type in _parts(type, acc))

    def _fold_group(self, reduction, type, lanes, width):
        """The accumulators of `width` threads of a warp, and their lanes, in the first of them.

        At every step a thread gives half of its lanes to the other one, and takes half of that one's: so they have
        fewer and fewer of them, until each has one; in the end the lanes are folded from thread to thread.
        """
        half, given = width // 2, []
        if reduction.startswith("arg"):                            # two values each: seldom enough
            return self._fold_lanes(reduction, type, self._fold_warp(reduction, type, lanes, width))
        while half and len(lanes) > 1:
            lanes = self._fold_swapping(reduction, type, lanes, half, width)
            given.append(half)
            half //= 2
        lanes = self._fold_warp(reduction, type, lanes, 2 * half) if half else lanes
        for half in given:
            lanes = [self._joined(reduction, type, acc, (self._shuffled("down", type, acc[0], half, width),))
                     for acc in lanes]
        return self._fold_lanes(reduction, type, lanes)

    def _fold_swapping(self, reduction, type, lanes, half, width):
        """The lower half of the lanes in one thread, and the upper in the one `half` away."""
        many = len(lanes) // 2
        upper = self._put("b1", f"({self.thread} & {half}) != 0")
        made = []
        for (low,), (high,) in zip(lanes[:many], lanes[many:], strict=True):
            theirs = self._put(type, self.d.select(upper, low, high))
            mine = self._put(type, self.d.select(upper, high, low))
            theirs = self._shuffled("across", type, theirs, half, width)
            if reduction in ("max", "min", "top"):                 # where it matters which comes first
                mine, theirs = (self._put(type, self.d.select(upper, theirs, mine)),
                                self._put(type, self.d.select(upper, mine, theirs)))
            made.append(self._joined(reduction, type, (mine,), (theirs,)))
        return made

    def _fold_warp(self, reduction, type, lanes, width):
        """The accumulators of `width` threads, in the first of them."""
        half = width // 2
        while half:
            lanes = [self._joined(reduction, type, acc, self._shuffled_parts("down", type, acc, half, width))
                     for acc in lanes]
            half //= 2
        return lanes

    # --- of several warps, through shared memory

    def _room(self, type, at):
        """(the name of an array of shared memory that begins after so many bytes, where the next one begins)."""
        memory_type, room = self.d.memory_type(type), self._new("r")
        self._line(self.d.pointer(memory_type, room, self.d.bytes_from("room", at)))
        threads = self.schedule.group * (self.schedule.at_once if self.schedule.abreast else self.width)
        return room, at + -(-threads * BYTES_OF_TYPE[type] // 8) * 8

    def _taken(self, type, text):
        """What is in shared memory, in a variable."""
        return self._put(type, text + (" != 0" if type == "b1" else ""))

    def _fold_abreast(self, folded):
        """The accumulators of threads that are in different warps, each of which has a part of the same rows."""
        group, width, at, out = self.schedule.group, self.schedule.at_once, 0, []
        beside = self._as("i32", self.x)
        index = self._put("i32", f"{self.thread} * {width} + {beside}")
        rooms = []
        for _, type, ((acc,),) in folded:
            room, at = self._room(type, at)
            self._line(f"{room}[{index}] = {acc};")
            rooms.append(room)
        self._line(self.d.barrier)
        for (reduction, type, _), room in zip(folded, rooms, strict=True):
            parts = [(self._taken(type, f"{room}[{i * width} + {beside}]"),) for i in range(group)]
            out.append((reduction, type, self._fold_lanes(reduction, type, parts)))
        self._line(self.d.barrier)                            # before others write there again
        self.room, self.boxes = max(self.room, at), max(self.boxes, 1)
        return out

    def _fold_block(self, folded):
        """The accumulators of all threads of the block. Warps share the lanes: one that has a lane folds what all
        threads have in it, and tells the others, who fold the lanes."""
        warps = self.schedule.group // self.d.warp
        rooms = self._in_rooms(folded)
        self._line(self.d.barrier)
        box = 0
        with self._within(TextScope()) as scope:
            for (reduction, type, _), mine in zip(folded, rooms, strict=True):
                for first in range(0, self.width, warps):
                    self._fold_in_box(reduction, type, mine, first, box)
                box += self.width * len(mine)
        if self.width < warps:
            self._block(f"if ({self.thread} < {self.d.warp * self.width})", scope)
        else:
            self.scopes[-1].lines.extend(scope.lines)
        self._line(self.d.barrier)
        self.boxes = max(self.boxes, box)
        return self._from_boxes(folded, rooms)

    def _in_rooms(self, folded):
        """Put all lanes of accumulators into shared memory: for each [(its array, the type)] of its parts."""
        at, rooms = 0, []
        for _, type, lanes in folded:
            mine = []
            for part, (_, part_type) in enumerate(_parts(type, lanes[0])):
                room, at = self._room(part_type, at)
                for v, acc in enumerate(lanes):
                    self._line(f"{room}[{v * self.schedule.group} + {self.thread}] = {acc[part]};")
                mine.append((room, part_type))
            rooms.append(mine)
        self.room = max(self.room, at)
        return rooms

    def _fold_in_box(self, reduction, type, rooms, first, box):
        """A lane of an accumulator, by the warp whose number is so many less: its result is put into a box."""
        group, warp = self.schedule.group, self.d.warp
        lane = self._put("i32", f"{self.thread} / {warp}" + (f" + {first}" if first else ""))
        start = self._put("i32", f"{lane} * {group} + {self.thread} % {warp}")
        parts = [tuple(self._taken(part_type, f"{room}[{start} + {warp * w}]") for room, part_type in rooms)
                 for w in range(group // warp)]
        done, = self._fold_warp(reduction, type, [self._fold_lanes(reduction, type, parts)], warp)
        for number, (part, part_type) in enumerate(_parts(type, done)):
            element = self.d.element_as(self.d.memory_type(part_type), ("box", str(box + number * self.width), lane))
            self._line(f"if ({self.thread} % {warp} == 0) {element} = {part};")

    def _from_boxes(self, folded, rooms):
        """The lanes of all accumulators, folded by every thread."""
        width, out, box = self.width, [], 0
        for (reduction, type, _), mine in zip(folded, rooms, strict=True):
            lanes = [tuple(self._taken(part_type, self.d.element_as(self.d.memory_type(part_type),
                                                                    ("box", str(box + number * width + v))))
                           for number, (_, part_type) in enumerate(mine)) for v in range(width)]
            box += width * len(mine)
            out.append((reduction, type, self._fold_lanes(reduction, type, lanes)))
        return out


def _parts(type, acc):
    """(a name, its type) of an accumulator's value, and of the index of an extreme."""
    return zip(acc, (type, "i64"), strict=False)

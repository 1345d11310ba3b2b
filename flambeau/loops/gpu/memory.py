"""How a kernel's operands are read and its results written: addresses, loads, stores, and packs of neighbours."""
from ..ir import BYTES_OF_TYPE
from .arguments import field
from .writer import Writer

VECTOR_BYTES = 16                 # of one load or store


class MemoryWriter(Writer):
    """A Writer that reads and writes memory. An address is a pointer's name, and what is added to it."""

    def _offset(self, number, level):
        """How far the position is from the start of an access, known at the scope `level`; 0 where it is there."""
        access, known = self.kernel.accesses[number], level
        while known and ("offset", number) not in self.scopes[known].known:
            known -= 1
        text = self.scopes[known].known.get(("offset", number), "0")
        for depth in range(known + 1, level + 1):
            parts = [] if text == "0" else [text]
            for d, step in enumerate(access.steps):
                if step and self.level_of[d] == depth:
                    parts.append(self.at[d] if step == 1 else f"{self.at[d]} * {self._int(f'stride {number} {d}')}")
            if len(parts) > (text != "0"):
                text = parts[0] if len(parts) == 1 and parts[0].isidentifier() else \
                    self._put(self.index, " + ".join(parts), self.scopes[depth])
            self.scopes[depth].known["offset", number] = text
        return text

    def _addresses(self, number, level, lanes):
        """The addresses of an access, for each of the `lanes` neighbours."""
        access, pointer, offset = self.kernel.accesses[number], self._pointer(number), self._offset(number, level)
        base = [pointer] if offset == "0" else [pointer, offset]
        out = []
        indices = self._value(access.at) if access.at is not None else None
        for v in range(lanes):
            parts = base.copy()
            if indices is not None:
                parts.append(f"{indices[v] if len(indices) > 1 else indices[0]} * given.{field(f'stride {number} at')}")
            if v and access.steps[self.lane]:
                parts.append(str(v) if access.steps[self.lane] == 1 else
                             f"{v} * {self._int(f'stride {number} {self.lane}')}")
            out.append(parts)
        return out

    # --- neighbours that go with one load or store

    def _is_packed(self, number):
        """Whether the neighbours that a thread takes at once lie side by side in memory, on a boundary of 16 bytes."""
        access = self.kernel.accesses[number]
        return self.lane is not None and self.width > 1 and access.steps[self.lane] == 1 \
            and (access.at is None or not self._varies(access.at))

    def _packs(self, number, level):
        """(the first neighbour, how many, their address) of each pack of an access."""
        size = _pack_size(self.kernel.accesses[number].type, self.width)
        address, = self._addresses(number, level, 1)
        self._call("Pack")
        return [(first, size, [*address, str(first)] if first else address) for first in range(0, self.width, size)]

    def _load_pack(self, type_name, size, address):
        return self.d.load_pack(type_name, size, address)

    def _store_pack(self, type_name, address, values):
        return self.d.store_pack(type_name, address, values)

    def _alignment(self):
        """Whether all that is loaded and stored by several elements starts on a boundary of so many."""
        packed = [i for i in range(len(self.kernel.accesses)) if self._is_packed(i)]
        types = [self.kernel.accesses[i].type for i in packed]
        most = max((BYTES_OF_TYPE[type] * _pack_size(type, self.width) for type in types), default=1)
        return f"(({' | '.join(f'given.p{i}' for i in packed)}) & {most - 1}) == 0" if packed else "true"

    # --- loads and stores

    def _load(self, e, scope):
        """The names of the values that are read."""
        access, level = self.kernel.accesses[e.attr], self._level(self.deps[e])
        memory_type = self.d.memory_type(access.type)
        names = []
        if self._varies(e) and self._is_packed(e.attr):
            for _, size, address in self._packs(e.attr, level):
                name = self._new("x")
                pack = self._load_pack(memory_type, size, address)
                self._line(self.d.constant(self.d.pack(memory_type, size), name, pack), scope)
                names += [self.d.in_pack(name, i) for i in range(size)]
        else:
            for address in self._addresses(e.attr, level, self.width if self._varies(e) else 1):
                names.append(self._new())
                self._line(self.d.constant(memory_type, names[-1], self.d.element(address)), scope)
        return as_values(access.type, names)

    def _stores(self, stores):
        """Write the values; all are computed first, since a result may stand where an operand stood."""
        for _, e in stores:
            self._value(e)
        for number, e in stores:
            self._store(number, self._value(e))

    def _store(self, number, values):
        """Write what the neighbours have, or what is the same for all of them, to an access."""
        access, level = self.kernel.accesses[number], len(self.scopes) - 1
        memory_type = self.d.memory_type(access.type)
        moves = self.lane is not None and access.steps[self.lane] != 0 and self.width > 1
        values = values * self.width if moves and len(values) == 1 else values
        values = [self._in_memory(access.type, v) for v in values]
        if moves and self._is_packed(number):
            for first, size, address in self._packs(number, level):
                self._line(self._store_pack(memory_type, address, values[first:first + size]))
        else:
            for address, value in zip(self._addresses(number, level, self.width if moves else 1), values,
                                      strict=False):
                self._line(f"{self.d.element(address)} = {value};")

    def _in_memory(self, type, value):
        """A value as it is stored."""
        return self.d.convert(self.d.memory_type(type), value) if type == "b1" else value


def as_values(type, names):
    """The values of elements in memory."""
    return [f"({name} != 0)" for name in names] if type == "b1" else names


def _pack_size(type, width):
    """How many of `width` neighbours go with one load or store."""
    return min(width, VECTOR_BYTES // BYTES_OF_TYPE[type])

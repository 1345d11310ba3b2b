"""What a check sees of contents that lie on another device: their form at once, their extremes once, the rest copied.

Operations check positions and labels at the call (`Op.verify`), and nearly all of these checks are about the smallest
and the largest number. A copy from a GPU waits for everything that the GPU was handed before. So extremes are kept with
the Value for as long as nobody writes to its storage; and those of a batch that is still on its way from the CPU, as
`batch.to("cuda")` is at the first operation, are read where it comes from.
"""
import weakref

from ..backends import host
from ..base.spec import CPU

INSTRUCTIONS_LOOKED_THROUGH = 200     # of those recorded last, for the copy that a Value is made by


class Contents:
    """Stands for the array of a tensor elsewhere; whatever else is asked of it is asked of a copy on the CPU."""

    def __init__(self, value, spec, offset, storage=None):
        self.value, self.spec, self.offset, self.storage = value, spec, offset, storage
        self.shape, self.ndim, self.size, self.dtype = tuple(spec.shape), spec.ndim, spec.numel, spec.dtype.np
        self.itemsize = self.dtype.itemsize
        self._array = None

    @property
    def array(self):
        """The contents on the CPU."""
        if self._array is None:
            found = _array(self.value, self.spec, self.offset)
            self._array = host.as_dtype(self.spec.device.backend.to_host(found), self.dtype)
        return self._array

    def min(self): return self._extremes()[0]
    def max(self): return self._extremes()[1]

    def _extremes(self):
        """(the smallest, the largest)."""
        kept = _kept(self.value, self.storage)
        key = self.spec, self.offset
        found = kept.get(key)
        if found is None:
            source = _on_its_way(self.value) if self.size == self.value.spec.numel else None
            array = self.array if source is None else source.array
            found = kept[key] = array.min(), array.max()
        return found

    def __getattr__(self, name): return getattr(self.array, name)
    def __array__(self, *args, **kwargs): return self.array.__array__(*args, **kwargs)
    def __getitem__(self, index): return self.array[index]
    def __iter__(self): return iter(self.array)
    def __len__(self): return len(self.array)
    def __bool__(self): return bool(self.array)
    def __lt__(self, other): return self.array < other
    def __le__(self, other): return self.array <= other
    def __gt__(self, other): return self.array > other
    def __ge__(self, other): return self.array >= other
    def __eq__(self, other): return self.array == other
    def __ne__(self, other): return self.array != other
    __hash__ = None


def contents(value, spec, offset, storage=None):
    """The contents of a Value as a tensor of `spec` sees them: an array of the CPU's, or what stands for one."""
    if spec.device is CPU:
        return _array(value, spec, offset)
    return Contents(value, spec, offset, storage)


def _array(value, spec, offset):
    """The array that a tensor of `spec` sees. One that is there is taken without a word to observers: a check that
    `compile` repeats is no look at a value half-way."""
    if value.trace is not None:
        value.ready()
    return value.look(spec, offset)


def _kept(value, storage):
    """{(spec, offset): extremes} that hold for a Value in its storage as long as that is not written to."""
    if storage is None or storage.exported:
        return {}
    found = getattr(value, "extremes", None)
    if found is None or found[0]() is not storage or found[1] != storage.version:
        found = value.extremes = weakref.ref(storage), storage.version, {}
    return found[2]


def _on_its_way(value):
    """The Value on the CPU that a pending one is going to be a plain copy of, or None."""
    trace = value.trace
    if trace is None:
        return None
    for entry, slots, _, _, first, _ in reversed(trace.code[-INSTRUCTIONS_LOOKED_THROUGH:]):
        if first == value.slot:
            if entry.op.__name__ != "_to_copy":
                return None
            source = trace.values[slots[0]]
            plain = source.trace is None and source.spec.device is CPU and source.spec.numel == value.spec.numel \
                and source.spec.dtype is value.spec.dtype
            return source if plain else None
    return None

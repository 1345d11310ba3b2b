"""The keys at which blocks begin and end, in little memory: a table of twenty million rows has 78,000 of each.

A KeyColumn holds the values of one column of the key. Whole numbers and real ones are machine words, texts and bytes
stand one behind the other in one piece; every other value (a date, a decimal, a mixture) is kept as the driver gave it.
What it gives back are the values that went in, of the same type, for a driver to bind as parameters.
"""
from array import array
from collections.abc import Iterable

import numpy as np


class KeyColumn:
    """Values of a key, packed by the type that they all have; the first value decides, and one that is unlike it
    makes objects of all."""
    __slots__ = ("store",)

    def __init__(self, values: Iterable = ()):
        self.store: WordStore | TextStore | ObjectStore | None = None
        for value in values:
            self.append(value)

    def __len__(self):
        return 0 if self.store is None else len(self.store)

    def append(self, value) -> None:
        if self.store is None:
            self.store = store_for(value)
        if not self.store.append(value):
            self.store = ObjectStore([*self.take(range(len(self))), value])

    def extend(self, numbers: np.ndarray) -> None:
        """Append whole numbers."""
        if self.store is None:
            self.store = WordStore("q", int)
        if isinstance(self.store, WordStore) and self.store.type is int:
            self.store.words.frombytes(numbers.astype(np.int64).tobytes())
        else:
            for number in numbers.tolist():
                self.append(number)

    @property
    def whole(self) -> bool:
        """Whether all values are whole numbers of 64 bits."""
        return self.store is None or isinstance(self.store, WordStore) and self.store.type is int

    def take(self, indices) -> list:
        """The values at these indices, as they were given."""
        return [] if self.store is None else self.store.take(indices)

    def __eq__(self, other):
        return isinstance(other, KeyColumn) and self.take(range(len(self))) == other.take(range(len(other)))

    __hash__ = None


class WordStore:
    """Python's ints that fit into 64 bits, or floats."""
    __slots__ = ("words", "type")

    def __init__(self, code, cls):
        self.words, self.type = array(code), cls

    def __len__(self):
        return len(self.words)

    def append(self, value):
        if type(value) is not self.type:
            return False
        try:
            self.words.append(value)
        except OverflowError:
            return False
        return True

    def take(self, indices):
        return [self.words[index] for index in indices]


class TextStore:
    """Texts or bytes, one behind the other, and where each ends."""
    __slots__ = ("content", "ends", "type")

    def __init__(self, cls):
        self.content, self.ends, self.type = bytearray(), array("q", [0]), cls

    def __len__(self):
        return len(self.ends) - 1

    def append(self, value):
        if type(value) is not self.type:
            return False
        self.content += value.encode("utf-8", "surrogatepass") if self.type is str else value
        self.ends.append(len(self.content))
        return True

    def take(self, indices):
        parts = [bytes(self.content[self.ends[index]:self.ends[index + 1]]) for index in indices]
        return [part.decode("utf-8", "surrogatepass") for part in parts] if self.type is str else parts


class ObjectStore:
    """Anything."""
    __slots__ = ("values",)

    def __init__(self, values=()):
        self.values = list(values)

    def __len__(self):
        return len(self.values)

    def append(self, value):
        self.values.append(value)
        return True

    def take(self, indices):
        return [self.values[index] for index in indices]


def store_for(value):
    """A store, still empty, that packs values like this one."""
    if type(value) is int:
        return WordStore("q", int)
    if type(value) is float:
        return WordStore("d", float)
    if type(value) in (str, bytes):
        return TextStore(type(value))
    return ObjectStore()

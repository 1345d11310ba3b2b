"""Classes of containers for the programs of containers.py: here, so that they are made once."""
import collections
import dataclasses
import enum
import typing


class Color(enum.Enum):
    RED = 1
    BLUE = (2, 3)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", "a b")


class Point(typing.NamedTuple):
    a: object
    b: object = 0

    def total(self): return self.a

    @property
    def twice(self): return (self.a, self.a)


class Loose(Point):
    """Its objects may have attributes besides."""


@dataclasses.dataclass
class Record:
    a: object
    b: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object


@dataclasses.dataclass(eq=False)
class Plain:
    a: object
    b: object


@dataclasses.dataclass
class Slotted:
    __slots__ = ("a", "b")
    a: object
    b: object


class Whole(int): pass


class Text(str): pass


class Row(list): pass


class Table(dict): pass


class Shaped(tuple):
    def __new__(cls, a, b): return tuple.__new__(cls, (a, b))

    @property
    def a(self): return self[0]

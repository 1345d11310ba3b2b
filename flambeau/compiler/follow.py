"""What the copies of the user's functions call instead of reading, writing and calling by themselves (rewrite.py).

Each method does what Python would have done, and lets the Journal know. Numbers that were found in a place are handed
to the copies as Traced ones (traced.py), and only to them: Traced numbers live in the copies' own local variables and
in containers that the call itself has made. Whatever leaves for somewhere else, because it is stored in an object,
handed to C code, or given back to the caller, is a plain number again. So only a copy ever meets one.

What a copy calls is followed as well, if it is Python with a source: user code, modules, optimizers, the standard
library. The engine (tensors and their operations) is called as it is. C functions are called as they are where they are
known to give the same for the same arguments; others are a reason not to replay.

Here are the numbers and the places; reading.py, writing.py, expressions.py and calling.py have the methods by what
they stand for, and models.py says what some functions in C do.
"""
import operator
import threading

from ..base.errors import line_of, user_frame
from ..tensor.tensor import Tensor
from .calling import Calling
from .expressions import Expressions
from .journal import MISSING, PLAIN_TYPES, by_identity
from .reading import Reading
from .traced import TRACED, plain as fixed
from .writing import Writing


class Follower(Reading, Writing, Expressions, Calling):
    """One call that is followed, with its Journal and the NumberLog."""

    def __init__(self, journal, number_log, varying):
        self.journal, self.number_log, self.varying = journal, number_log, varying
        self.proxies = {}             # edge → the Traced, or tuple with some, that copies see there
        self.stored = {}              # edge → the Traced, or tuple with some, that the call has put there
        self.put = set()              # edges that the call has written to
        self.written = set()          # these, and those that other code may have written to
        self.bare = set()             # edges of numbers that other code can see: guarded by value
        self.published = {}           # id → container that the call has made and put where others see it
        self.effect = None            # the first thing that a replay would not repeat, in words
        self.depth = 0
        self.capture = None           # the Capture whose call this is
        self.thread, self.open = threading.get_ident(), True
        self._classes = {}            # class of an autograd Function → one whose methods are followed

    def live(self):
        return self.open and threading.get_ident() == self.thread

    def close(self):
        """From here on this is only what functions that were made inside go through: nothing is noted any more."""
        self.open, self.published = False, {}

    def forget(self):
        """Let go of everything: copies that live on hold the Follower."""
        self.journal = self.number_log = self.capture = None
        self.proxies, self.stored, self.published, self._classes = {}, {}, {}, {}
        self.bare, self.written, self.put = set(), set(), set()

    def refuse(self, why):
        self.journal.refuse(why)

    def _line(self):
        frame = user_frame()
        return "an unknown line" if frame is None else line_of((frame.f_code, frame.f_lasti))

    # --- numbers -----------------------------------------------------------------------------------------------------

    def substitute(self, edge, value):
        """What a copy sees of the value in a place."""
        if value is not edge.child:                          # by the call itself, or by code that is not followed
            self.written.add(edge)
        if edge in self.written:
            mine = self.stored.get(edge)
            return mine if mine is not None and (plain_number(mine),) == (value,) else value      # nan is itself there
        mine = self.proxies.get(edge)
        if mine is not None:
            return mine
        cls = type(value)
        if value is edge.child and not self._is_bare(edge) and not edge.blind and (
                cls is float or cls is int and edge.path in self.varying or cls is tuple and is_floats(value)):
            number = f"n{len(self.proxies)}"
            if cls is tuple:
                mine = tuple([self.number_log.leaf(f"{number}_{i}", x) if type(x) is float else x
                              for i, x in enumerate(value)])
            else:
                mine = self.number_log.leaf(number, value)
            self.proxies[edge] = mine
            return mine
        return value

    def original(self, x):
        """The object that copies see `x` in the place of."""
        if type(x) in TRACED:
            return x._value
        return next((edge.child for edge, mine in self.proxies.items() if mine is x), x)

    def plain(self, x):
        """`x` as other code may see it: Traced numbers in it, and in containers of the call's own, are fixed."""
        cls = type(x)
        if cls in TRACED:
            return fixed(x)
        if not self.open:
            return x
        if cls is tuple:
            if any(type(part) in TRACED or type(part) in (tuple, list, dict, slice) for part in x):
                parts = [self.plain(part) for part in x]
                if all(map(operator.is_, parts, x)):
                    return x
                found = self.original(x)
                return found if found is not x else tuple(parts)
        elif cls is slice:
            parts = x.start, x.stop, x.step
            plain = [self.plain(part) for part in parts]
            return x if all(map(operator.is_, plain, parts)) else slice(*plain)
        elif (cls is list or cls is dict) and id(x) not in self.journal.seen and id(x) not in self.published:
            self.published[id(x)] = x
            for key, part in list(enumerate(x) if cls is list else x.items()):
                now = self.plain(part)
                if now is not part:
                    x[key] = now
        return x

    def escape(self, x):
        """`x` as code that is not followed may see it: plain, with all that can be reached from it noted."""
        x = self.plain(x)
        if type(x) not in PLAIN_TYPES and not isinstance(x, Tensor):
            count = len(self.journal.edges)
            self.journal.walk(x)
            if count != len(self.journal.edges) or self.proxies or self.stored:
                self._lay_bare()
        return x

    def key(self, x):
        """`x` as the key of a dictionary, or an element of a set: hashed and compared, which is a use of all of it."""
        if type(x) in PLAIN_TYPES or isinstance(x, (Tensor, type)) or type(x) in TRACED:
            return fixed(x)
        if not self.live():
            return x
        if by_identity(x):                                   # nothing of what it holds is asked for
            if id(x) in self.journal.loose:
                self.refuse(f"{self.journal.path(x)} is a key at {self._line()} by its identity, and it is another "
                            "object at every call")
            return x
        return self.escape(x)

    def _lay_bare(self):
        """Numbers in what was walked are seen by others: they are guarded by value."""
        walked = self.journal._walked
        for edge in self.journal.edges:
            if edge not in self.bare and id(edge.holder) in walked:
                self.bare.add(edge)
                for x in (self.proxies.get(edge), self.stored.pop(edge, None)):
                    for part in x if type(x) is tuple else (x,):
                        fixed(part)
                self.written.add(edge)                       # code that sees it may write to it

    # --- places ------------------------------------------------------------------------------------------------------

    def place(self, kind, holder, key, path, child=MISSING):
        """What a copy sees in a place of a seen object."""
        edge = self.journal.find(kind, holder, key)
        if edge is None:
            edge = self.journal.edge(kind, holder, key, child, path)
            if id(holder) in self.journal._walked:
                self.bare.add(edge)
        else:
            self.journal.read(edge)
        return self.substitute(edge, child)

    def _sees(self, thing):
        return id(thing) in self.journal.seen


def plain_number(x):
    """A Traced number, or a tuple with some, as plain numbers."""
    return x._value if type(x) in TRACED else tuple([part._value if type(part) in TRACED else part for part in x])


def is_floats(x):
    """Whether a tuple holds numbers and nothing else, some of them floats: the decay rates of an optimizer."""
    return all(type(part) in (int, float) for part in x) and any(type(part) is float for part in x)

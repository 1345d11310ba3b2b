"""A reader of pickles that runs nothing: a stack, a memo, and the opcodes that build plain data.

Python's own unpickler calls whatever a file names. This one knows a table of names (`allowed_globals.py`) and refuses
all others. A file cannot make it work longer, or hold more, than in proportion to its own length: see Note [Fuel].

Note [Fuel]: an opcode of a few bytes may copy a list that the memo holds, hash a tuple whose parts are shared so often
that walking them takes for ever, compare two long strings, or hang the same attributes on one object after the other.
Every step whose work is not bounded by the bytes of its own opcode says what it costs (`burn`, `burn_bytes`), and it is
taken from a budget that grows with the bytes read so far; an honest pickle, which mentions each part a few times, needs
little of it. Keys whose hashes a file could choose to collide are counted besides.
"""
import _compat_pickle
import contextlib
import struct
from collections import Counter, OrderedDict

from .errors import EmptyFile, FileError, NotSupported, in_record

FUEL_PER_BYTE = 32              # of the pickle so far; see Note [Fuel]
FUEL_AT_FIRST = 1 << 14
BYTES_PER_FUEL = 64             # that are copied, compared or hashed in the time of a step
MAXIMUM_COLLISIONS = 64         # this many keys of one dictionary may have one hash
MAXIMUM_KEY_DEPTH = 32          # of tuples in tuples; Python's hash goes as deep as they do, on the stack of C
UNCOUNTED_ARGUMENTS = 16        # of a call
TEXT_TYPES = (str, bytes)
SAFELY_HASHED_TYPES = frozenset({str, bytes, bool, type(None)})  # text hashes are salted; True and None are few
NESTED_KEY_TYPES = (tuple, frozenset)
DICT_TYPES = (dict, OrderedDict, Counter)
plain = contextlib.nullcontext()


def bytes_of(part):
    """How many bytes hashing or comparing `part` looks at, where a file can make them many."""
    cls = type(part)
    return len(part) if cls in TEXT_TYPES else part.bit_length() // 8 if cls is int else 0


class Unpickler:
    """One pickle, from `position` in `data` on.

    `names` (a `GlobalNames`) says what a global means and makes objects with it; `stored(unpickler, pid)` gives the
    storage that a persistent id means; `encoding` is that of Python 2's strings; `record` is what errors call it.
    """

    def __init__(self, data, names, stored=None, position=0, encoding="utf-8", record="data.pkl"):
        self.record = record
        self.data = data if type(data) is bytes else memoryview(data)
        self.names, self.stored, self.position, self.encoding = names, stored, position, encoding
        self.stack: list = []
        self.marks: list = []                       # how long the stack was at each mark
        self.memo: dict = {}
        self.start, self.burnt = position, 0
        self.late = False                           # whether the contents of storages are read after the pickle
        self.results: Counter = Counter()           # bytes that were computed from a storage, by the storage
        self.hashes: dict = {}                      # id of a container → (the container, how often it has which hash)

    def run(self):
        """What the pickle describes; `position` is then the byte after it."""
        if self.position >= len(self.data):
            raise EmptyFile(f"Ran out of input: {self.record} is empty")
        with in_record(self.record):
            try:
                self._steps()
            except (IndexError, struct.error) as error:
                raise self.broken("it takes more from the stack than is there, or ends early") from error
        if len(self.stack) != 1 or self.marks:
            raise self.broken(f"it leaves {len(self.stack)} objects and {len(self.marks)} marks, not one object")
        return self.stack.pop()

    def _steps(self):
        """Opcode after opcode until STOP. The most frequent ones stand here, where they cost no call."""
        steps, data, stack, memo, at = OPCODE_FUNCTIONS, self.data, self.stack, self.memo, self.position
        push = stack.append
        while True:
            code = data[at]
            at += 1
            if code == BININT1:
                push(data[at])
                at += 1
            elif code == BINPUT:
                memo[data[at]] = stack[-1]
                at += 1
            elif code == LONG_BINPUT:
                memo[unsigned(data, at)[0]] = stack[-1]
                at += 4
            elif code == BININT:
                push(signed(data, at)[0])
                at += 4
            elif code == BINFLOAT:
                push(double(data, at)[0])
                at += 8
            elif code == BININT2:
                push(data[at] | data[at + 1] << 8)
                at += 2
            elif code == BINGET and data[at] in memo:
                push(memo[data[at]])
                at += 1
            elif code == STOP:
                self.position = at
                return
            else:
                self.position = at
                step = steps[code]
                if step is None:
                    raise self.broken(f"Unsupported operand {code} ({code:#x})")
                step(self)
                at = self.position

    def broken(self, why):
        """The error for a pickle that no honest writer has written, at the opcode before `position`."""
        return FileError(f"{self.record} is damaged, at byte {self.position - 1}: {why}", record=self.record)

    # --- bytes --------------------------------------------------

    def take(self, count):
        start = self.position
        if count > len(self.data) - start:
            raise self.broken(f"{count} bytes were announced and {len(self.data) - start} are left")
        self.position = start + count
        return self.data[start:start + count]

    def number(self, size):
        return int.from_bytes(self.take(size), "little")

    def line(self):
        found = bytes(self.data[self.position:self.position + 1000])
        end = found.find(b"\n")
        if end < 0:
            raise self.broken("a name does not end")
        self.position += end + 1
        return self.text(found[:end])

    def text(self, raw, encoding="utf-8", errors="surrogatepass"):
        try:
            return str(raw, encoding, errors)
        except UnicodeDecodeError as error:
            raise self.broken(f"text is not {encoding}") from error

    def burn(self, amount):
        """Pay for work that the length of the pickle does not bound; see Note [Fuel]."""
        self.burnt += amount
        if self.burnt > FUEL_PER_BYTE * (self.position - self.start) + FUEL_AT_FIRST:
            raise self.broken("it refers to the same parts so often that it would unfold without bound")

    def burn_bytes(self, *parts):
        """Pay for looking at all of some strings, or of a number of many digits."""
        self.burn(sum(bytes_of(part) // BYTES_PER_FUEL for part in parts))

    # --- keys --------------------------------------------------

    def check_key(self, key, target):
        """Refuse a key that cannot be hashed, or whose hashing or comparing costs more than its place in the file."""
        cls = type(key)
        if cls in SAFELY_HASHED_TYPES or cls is int and -1 << 63 <= key < 1 << 63:
            if cls in TEXT_TYPES and len(key) > BYTES_PER_FUEL:
                self.burn_bytes(key)                # it is compared with one that is equal and not the same
            return
        before = self.burnt
        if isinstance(key, NESTED_KEY_TYPES):
            stack = [(key, 0)]
            while stack:
                part, depth = stack.pop()
                if depth > MAXIMUM_KEY_DEPTH:
                    raise self.broken(f"a key is nested more than {MAXIMUM_KEY_DEPTH} deep")
                self.burn(1 + len(part))
                self.burn_bytes(*part)
                stack += [(inner, depth + 1) for inner in part if isinstance(inner, NESTED_KEY_TYPES)]
        else:
            self.burn_bytes(key)
        cost = self.burnt - before
        try:
            found = hash(key)
        except Exception as error:                  # a list, or an object of a class that the user trusts
            raise self.broken(f"a {cls.__name__} is used as a key: {error}") from error
        _, seen = self.hashes.setdefault(id(target), (target, Counter()))
        seen[found] += 1
        if seen[found] > MAXIMUM_COLLISIONS:
            raise self.broken("its keys are made to collide")
        self.burn(cost * (seen[found] - 1))         # it is compared with each of those

    def put_items(self, target, items):
        if len(items) % 2:
            raise self.broken("a key has no value")
        if type(target) not in DICT_TYPES and not self.names.trusted(target):
            raise self.broken(f"items are set in a {type(target).__name__}")
        check = self.check_key
        with plain if type(target) in DICT_TYPES else self.names.trusting(target):
            for at in range(0, len(items), 2):
                check(items[at], target)
                target[items[at]] = items[at + 1]

    def copied(self, count):
        """Pay for a copy of `count` elements that the memo may hand out again and again."""
        self.burn(8 * count)

    def computed(self, tensor):
        """Refuse to compute from one storage, on the file's word, much more than it holds."""
        if self.late:
            raise NotSupported("it holds a conjugate view in PyTorch's old format; call resolve_conj() in PyTorch and "
                               "save it again")
        cell = tensor._storage
        self.results[cell] += tensor._spec.nbytes
        if self.results[cell] > 4 * cell.nbytes:
            raise self.broken("it asks to compute more than it holds")

    def put_members(self, target, items):
        for item in items:
            self.check_key(item, target)
            target.add(item)

    def append(self, target, items):
        if type(target) is not list and not self.names.trusted(target):
            raise self.broken(f"a {type(target).__name__} is appended to")
        with plain if type(target) is list else self.names.trusting(target):
            target.extend(items)

    def pop_mark(self):
        """What was pushed since the last mark."""
        if not self.marks or self.marks[-1] > len(self.stack):
            raise self.broken("a mark is missing")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    # --- objects --------------------------------------------------

    def push_global(self, module, name):
        if type(module) is not str or type(name) is not str:
            raise self.broken("a global has no name")
        self.burn_bytes(module, name)
        # Protocol 2 writes the names of Python 2.
        if (module, name) in _compat_pickle.NAME_MAPPING:
            module, name = _compat_pickle.NAME_MAPPING[module, name]
        else:
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        self.stack.append(self.names.find(module, name))

    def make(self, function, args, kwargs=None, new=False):
        if type(args) is not tuple:
            raise self.broken("arguments are not a tuple")
        if len(args) + len(kwargs or ()) > UNCOUNTED_ARGUMENTS:
            self.burn(len(args) + len(kwargs or ()))
        self.stack.append(self.names.make(self, function, args, kwargs or {}, new))

    def persistent(self, pid):
        if self.stored is None:
            raise self.broken("persistent id where there are no storages")
        self.stack.append(self.stored(self, pid))


# --- the opcodes --------------------------------------------------

STOP, BININT, BININT1, BININT2, BINFLOAT, BINGET, BINPUT, LONG_BINPUT = b".JKMGhqr"
signed, unsigned, double = (struct.Struct(form).unpack_from for form in ("<i", "<I", ">d"))
OPCODE_FUNCTIONS: list = [None] * 256


def op(code):
    """Enter the decorated function as what the opcode `code` does."""
    def enter(step):
        OPCODE_FUNCTIONS[code if isinstance(code, int) else ord(code)] = step
        return step
    return enter


def constant(code, make):
    op(code)(lambda m: m.stack.append(make()))


def counted(code, size, make):
    """An opcode whose argument is bytes, with their number in `size` bytes before them."""
    op(code)(lambda m: m.stack.append(make(m, m.take(m.number(size)))))


constant("N", lambda: None)
constant(0x88, lambda: True)
constant(0x89, lambda: False)
constant(")", tuple)
constant("]", list)
constant("}", dict)
constant(0x8f, set)


def long(m, raw):
    return int.from_bytes(raw, "little", signed=True)


def old_text(m, raw):
    """A string of Python 2, which may have been text or bytes; the caller of `load` says which."""
    return bytes(raw) if m.encoding == "bytes" else m.text(raw, m.encoding, "strict")


counted(0x8a, 1, long)
counted(0x8b, 4, long)
for code, size in (("X", 4), (0x8c, 1), (0x8d, 8)):
    counted(code, size, Unpickler.text)
for code, size in (("B", 4), ("C", 1), (0x8e, 8)):
    counted(code, size, lambda m, raw: bytes(raw))
for code, size in (("T", 4), ("U", 1)):
    counted(code, size, old_text)
counted(0x96, 8, lambda m, raw: bytearray(raw))


@op(0x80)
def proto(m):
    version = m.number(1)
    if version > 5:
        raise NotSupported(f"pickle protocol {version} is not known; 5 and below are")


@op(0x95)
def frame(m):
    if m.number(8) > len(m.data) - m.position:
        raise m.broken("a frame reaches beyond the end")


@op("(")
def mark(m):
    m.marks.append(len(m.stack))


@op("0")
def pop(m):
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.stack.pop()


@op("1")
def pop_mark(m):
    m.pop_mark()


@op("2")
def dup(m):
    m.stack.append(m.stack[-1])


def tuple_of(code, count):
    @op(code)
    def make(m):
        if len(m.stack) < count:
            raise m.broken(f"a tuple of {count} is made from {len(m.stack)}")
        m.stack[-count:] = [tuple(m.stack[-count:])]


for count in (1, 2, 3):
    tuple_of(0x84 + count, count)


@op("t")
def make_tuple(m):
    items = m.pop_mark()
    m.stack.append(tuple(items))


@op("a")
def append(m):
    item = m.stack.pop()
    m.append(m.stack[-1], [item])


@op("e")
def appends(m):
    items = m.pop_mark()
    m.append(m.stack[-1], items)


@op("s")
def setitem(m):
    value, key = m.stack.pop(), m.stack.pop()
    m.put_items(m.stack[-1], [key, value])


@op("u")
def setitems(m):
    items = m.pop_mark()
    m.put_items(m.stack[-1], items)


@op(0x90)
def additems(m):
    items = m.pop_mark()
    if type(m.stack[-1]) is not set:
        raise m.broken(f"members are added to a {type(m.stack[-1]).__name__}")
    m.put_members(m.stack[-1], items)


@op(0x91)
def make_frozenset(m):
    members: set = set()
    m.put_members(members, m.pop_mark())
    m.stack.append(frozenset(members))


def getter(code, size):
    @op(code)
    def get(m):
        index = m.number(size)
        if index not in m.memo:
            raise m.broken(f"Memo value not found at index {index}")
        m.stack.append(m.memo[index])


getter("h", 1)
getter("j", 4)


@op(0x94)
def memoize(m):
    m.memo[len(m.memo)] = m.stack[-1]


@op("c")
def named_global(m):
    module = m.line()
    m.push_global(module, m.line())


@op(0x93)
def stack_global(m):
    name, module = m.stack.pop(), m.stack.pop()
    m.push_global(module, name)


@op("R")
def reduce(m):
    args, function = m.stack.pop(), m.stack.pop()
    m.make(function, args)


@op(0x81)
def newobj(m):
    args, cls = m.stack.pop(), m.stack.pop()
    m.make(cls, args, new=True)


@op(0x92)
def newobj_ex(m):
    kwargs, args, cls = m.stack.pop(), m.stack.pop(), m.stack.pop()
    if type(kwargs) is dict:
        m.burn(len(kwargs))
    if type(kwargs) is not dict or not all(type(key) is str for key in kwargs):
        raise m.broken("keyword arguments have no names")
    m.make(cls, args, kwargs, new=True)


@op("b")
def build(m):
    state = m.stack.pop()
    m.names.build(m, m.stack[-1], state)


@op("Q")
def binpersid(m):
    m.persistent(m.stack.pop())

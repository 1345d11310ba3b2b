"""What is said when a result cannot be computed: the lines that recorded it, and for want of memory, who holds that."""
import gc
import itertools
from collections import namedtuple

from ..autograd.node import Kept, Node
from ..backends import memory
from ..backends.memory import bytes_in_words
from ..base.errors import line_of
from ..trace import record
from ..trace.value import Storage, Value
from .messages import called_as
from .tensor import Tensor
from .user_attributes import fields

Line = namedtuple("Line", "line nbytes count largest")


def biggest(n=5):
    """The `n` lines whose tensors hold most memory: (line, bytes, how many buffers, spec of the largest).

    A buffer counts once, for the tensor that it was made for; those that only a backward waits for count for the line
    that recorded the operation.
    """
    groups: dict = {}
    for value, line, kind in _holders():
        groups.setdefault(line, []).append((value.array.nbytes, kind))
    lines = [Line(line, sum(size for size, _ in found), len(found), max(found, key=lambda one: one[0])[1])
             for line, found in groups.items()]
    return sorted(lines, key=lambda line: (-line.nbytes, line.line))[:n]


def by_line(n=5, indent="    "):
    """`biggest(n)` as text, a line each."""
    lines = biggest(n)
    width = max((len(found.line) for found in lines), default=0)
    return "".join(f"\n{indent}{found.line:{width}}  {bytes_in_words(found.nbytes):>10} in {found.count} "
                   f"{'buffer' if found.count == 1 else 'buffers'}, the largest {found.largest}" for found in lines)


def _holders():
    """(value, line, spec) of every buffer that is there, once."""
    tensors, nodes, storages, values = _alive()
    seen = set()
    # The oldest that looks at the whole of a storage stands for it.
    for tensor in sorted(tensors, key=lambda t: (t._base is not None, -t._spec.nbytes)):
        yield from _once(seen, tensor._storage.value, line_of(tensor._site), tensor._spec)
    for node in nodes:
        for storage in _kept(node):
            yield from _once(seen, storage.value, f"{line_of(node.site)} (for backward)")
    for storage in storages:
        yield from _once(seen, storage.value, "held without a tensor")
    for value in values:
        yield from _once(seen, value, "held by recorded operations")


def _alive():
    """Every tensor, node, storage and value that there is, the older ones first."""
    wanted: dict = {}                                # type → the list that its things go to
    found: dict = {Tensor: [], Node: [], Storage: [], Value: []}
    for thing in itertools.chain.from_iterable(map(gc.get_objects, (2, 1, 0))):
        kind = type(thing)                           # not isinstance: a proxy would be asked what it is
        if kind not in wanted:
            wanted[kind] = next((found[base] for base in found if issubclass(kind, base)), None)
        if wanted[kind] is not None:
            wanted[kind].append(thing)
    return [t for t in found[Tensor] if "_storage" in fields(t)], found[Node], found[Storage], found[Value]


def _once(seen, value, line, kind=None):
    """The buffer of `value`, if it is there and was not counted."""
    if value is not None and value.trace is None and id(value) not in seen:
        seen.add(id(value))
        yield value, line, kind or value.spec


def _kept(node):
    """The storages that a node keeps for its backward."""
    stack = [vars(node).get("kept")]
    while stack:
        thing = stack.pop()
        if isinstance(thing, (list, tuple)):
            stack.extend(thing)
        elif isinstance(thing, Kept):
            stack.append(vars(thing).get("storage"))
        elif isinstance(thing, Storage):
            yield thing


def explain(error, asked):
    """What to add to the message of an OutOfMemoryError: for which result, looked at where, and who holds the rest."""
    return _purpose(error, asked) + "\n  The lines that hold most memory:" + (by_line() or " none")


def _purpose(error, asked):
    """For which result the memory was to be, where that was recorded, and what was looked at."""
    entry = error.entry
    kinds = (error.spec,) if error.spec is not None else entry.outs if entry is not None and entry.outs else ()
    text = ""
    if kinds:
        op = f"{called_as(entry.op)}() giving " if entry is not None and hasattr(entry.op, "called") else ""
        text = f"\n  It was for {op}{', '.join(map(str, kinds))}"
        text += f", recorded at {line_of(error.site)}." if error.site is not None else "."
    needed = _needed_for(asked, entry, error.site)
    return f"{text}\n  It was {needed}." if needed else text


def _needed_for(asked, entry, site):
    """What was looked at and the line that recorded it, where that is another instruction than the one that failed."""
    found = record.instruction_of(asked)
    if found is None or found[0] is entry and found[5] == site:
        return ""
    return f"needed for {asked.spec}, recorded at {line_of(found[5])}"


def where(failure, asked):
    """The operation that failed and the line that recorded it, and what it was needed for."""
    op = called_as(failure.entry.op) if hasattr(failure.entry.op, "called") else failure.entry.op.__name__
    text = f"in {op}() giving {', '.join(map(str, failure.entry.outs))}"
    needed = _needed_for(asked, failure.entry, failure.site)
    return f"{text}, recorded at {line_of(failure.site)}" + (f", {needed}" if needed else "")


memory.on_failure.append(explain)
record.notes.append(where)

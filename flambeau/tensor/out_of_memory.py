"""What is said when a result cannot be computed: the lines that recorded it, and for want of memory, who holds that.

Memory of one device is told apart from that of others, by the line that asked for it, and by what it is for:
parameters, their gradients, what optimizers keep, what waits for a backward, and the rest.
"""
import gc
import itertools
from collections import namedtuple

from ..autograd.base_node import Node
from ..autograd.node import Kept
from ..backends.cpu.memory import allocator
from ..backends.cpu.memory.allocator import bytes_in_words
from ..base.errors import line_of
from ..base.spec import CPU
from ..trace.recording import record
from ..trace.running import runner
from ..trace.value import Storage, Value
from .messages import called_as
from .tensor import Tensor
from .user_attributes import has_storage

Line = namedtuple("Line", "line nbytes count largest")
ROLES = ("parameters", "gradients", "optimizer state", "graph", "other")
keepers: dict = {}            # class → a function that gives the tensors which an object of it keeps as optimizer state


def biggest(n=5, device=CPU):
    """The `n` lines whose tensors hold most memory of a device: (line, bytes, how many buffers, spec of the largest).

    A buffer counts once, for the tensor that it was made for; those that only a backward waits for count for the line
    that recorded the operation.
    """
    groups: dict = {}
    for value, line, spec, _ in holders(device):
        groups.setdefault(line, []).append((value.array.nbytes, spec))
    lines = [Line(line, sum(size for size, _ in found), len(found), max(found, key=lambda one: one[0])[1])
             for line, found in groups.items()]
    return sorted(lines, key=lambda line: (-line.nbytes, line.line))[:n]


def by_line(n=5, indent="    ", device=CPU):
    """`biggest(n, device)` as text, a line each."""
    lines = biggest(n, device)
    width = max((len(found.line) for found in lines), default=0)
    return "".join(f"\n{indent}{found.line:{width}}  {bytes_in_words(found.nbytes):>10} in {found.count} "
                   f"{'buffer' if found.count == 1 else 'buffers'}, the largest {found.largest}" for found in lines)


def by_role(device=CPU):
    """{what it is for: bytes of a device's memory}, in the order of ROLES, with a part for each; a buffer counts once,
    for the first of them."""
    found = dict.fromkeys(ROLES, 0)
    for value, role in roles(device):
        found[role] += value.array.nbytes
    return found


def roles(device=CPU):
    """(value, what it is for) of every buffer of a device that is there, once."""
    tensors, nodes, storages, values, *others = _alive(*keepers)
    kept = [t for keep, things in zip(keepers.values(), others, strict=True) for one in things for t in keep(one)]
    values_of = {
        "parameters": [t._storage.value for t in tensors if _is_parameter(t)],
        "gradients": [t._grad._storage.value for t in tensors if t._grad is not None],
        "optimizer state": [t._storage.value for t in kept],
        "graph": [storage.value for node in nodes for storage in _kept(node)],
        "other": [*(t._storage.value for t in tensors), *(storage.value for storage in storages), *values]}
    seen: set = set()
    return [(found[0], role) for role in ROLES for one in values_of[role]
            for found in _once(seen, one, "", device=device)]


def roles_in_words(device=CPU):
    """`by_role` as a sentence without its end."""
    found = by_role(device)
    words = ", ".join(f"{role} {bytes_in_words(nbytes)}" for role, nbytes in found.items())
    rest = device.backend.statistics().get("allocated_bytes.all.current", 0) - sum(found.values())
    if device is CPU or rest <= 0:
        return words
    return f"{words}; {bytes_in_words(rest)} are no tensor's: working memory of programs and libraries, rounding"


def _is_parameter(tensor):
    """Whether a module registers it; nn/parameter.py marks its class, or itself."""
    return getattr(type(tensor), "_prints_as_parameter", False) or getattr(tensor, "_is_param", False)


def holders(device=CPU):
    """(value, line, spec, tensor or None) of every buffer of a device that is there, once."""
    tensors, nodes, storages, values = _alive()
    seen: set = set()
    # The oldest that looks at the whole of a storage stands for it.
    for tensor in sorted(tensors, key=lambda t: (t._base is not None, -t._spec.nbytes)):
        for found in _once(seen, tensor._storage.value, line_of(tensor._site), tensor._spec, device):
            yield *found, tensor
    for node in nodes:
        for storage in _kept(node):
            for found in _once(seen, storage.value, f"{line_of(node.site)} (for backward)", device=device):
                yield *found, None
    for value, line in (*((storage.value, "held without a tensor") for storage in storages),
                        *((value, "held by recorded operations") for value in values)):
        for found in _once(seen, value, line, device=device):
            yield *found, None


def _alive(*classes):
    """Every tensor, node, storage and value that there is, and what is of other `classes`, the older ones first."""
    wanted: dict = {}                                # type → the list that its things go to
    found: dict = {Tensor: [], Node: [], Storage: [], Value: [], **{cls: [] for cls in classes}}
    for thing in itertools.chain.from_iterable(map(gc.get_objects, (2, 1, 0))):
        cls = type(thing)                            # not isinstance: a proxy would be asked what it is
        if cls not in wanted:
            wanted[cls] = next((found[base] for base in found if issubclass(cls, base)), None)
        if wanted[cls] is not None:
            wanted[cls].append(thing)
    return [[t for t in found.pop(Tensor) if has_storage(t)], *found.values()]


def _once(seen, value, line, spec=None, device=CPU):
    """The buffer of `value`, if it is there, on `device`, and was not counted."""
    if value is not None and value.trace is None and id(value) not in seen and value.spec.device is device:
        seen.add(id(value))
        yield value, line, spec or value.spec


def _kept(node):
    """The storages that a node keeps for its backward."""
    stack = [getattr(node, "kept", None)]
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
    device = error.device or CPU
    return (f"{_purpose(error, asked)}\n  Of {'the memory' if device is CPU else str(device)} that tensors hold: "
            f"{roles_in_words(device)}.\n  The lines that hold most memory:" + (by_line(device=device) or " none"))


def _purpose(error, asked):
    """For which result the memory was to be, where that was recorded, and what was looked at."""
    entry = error.entry
    specs = (error.spec,) if error.spec is not None else entry.outs if entry is not None and entry.outs else ()
    text = ""
    if specs:
        op = f"{called_as(entry.op)}() giving " if entry is not None and hasattr(entry.op, "called") else ""
        text = f"\n  It was for {op}{', '.join(map(str, specs))}"
        text += f", recorded at {line_of(error.site)}." if error.site is not None else "."
    needed = _needed_for(asked, entry, error.site)
    return f"{text}\n  It was {needed}." if needed else text


def _needed_for(asked, entry, site):
    """What was looked at and the line that recorded it, where that is another instruction than the one that failed."""
    found = record.instruction_of(asked)
    if found is None or found.entry is entry and found.site == site:
        return ""
    return f"needed for {asked.spec}, recorded at {line_of(found.site)}"


def where(failure, asked):
    """The operation that failed and the line that recorded it, and what it was needed for."""
    op = called_as(failure.entry.op) if hasattr(failure.entry.op, "called") else failure.entry.op.__name__
    text = f"in {op}() giving {', '.join(map(str, failure.entry.outs))}"
    needed = _needed_for(asked, failure.entry, failure.site)
    return f"{text}, recorded at {line_of(failure.site)}" + (f", {needed}" if needed else "")


allocator.on_failure.append(explain)
runner.notes.append(where)

"""Write the function that replays a call: guards in a straight line, one run, and then what the call did.

It is Python, made with `exec`; `print(recording.source)` shows it. Constants are global names there: `c7` an object,
`T9` a tensor, `S10` a storage; arguments and what else is another object at every call are local ones: `v3`, `s2`;
numbers are `n0`, and `t0` what was computed from them.
"""
import math
import re
import weakref
from collections import Counter
from itertools import groupby

from ..autograd.edges import requires
from ..autograd.modes import modes
from ..base import dtypes
from ..base.errors import PACKAGE
from ..base.spec import _default_devices, as_device
from ..tensor.tensor import Tensor
from ..trace.recording.instructions import needed_for
from .capture import mode_state
from .diff import NotReplayable
from .guards import Guards, ModesLook, TensorLook, same_value, same_values
from .head import head_of, slots_of
from .journal import EQUALITY_TYPES, MISSING, PLAIN_TYPES, VALUE_TYPES, content, short, size_of
from .moving import Moving, beginning
from .rebuild import new_storage, new_tensor, put_results, recycle, recycled, renew, values_of
from .replay import Runner
from .runtime import REFUSED, Checks, Draws, Miss, count_hidden_writes, facts_of, new_record
from .taking import FAILED, take
from .traced import TRACED, traced_in, word

TAKEN = "    # and all of it once more"
MAX_CHECKED_OPERATIONS = 64   # that checks of data may look at where they are more than a quarter of all


class Replay:
    """One way that a function was recorded. `replay(args, kwargs, taken)` gives the result, or a Miss; `taken` is a
    list for what was taken for this call."""

    def __init__(self, diff, dropped, others):
        trace = diff.trace
        self.guards = []              # in words
        self.varies = {}              # guard → path of the whole number that it is about
        self.effects = []             # in words
        self.moving = []              # paths of the numbers that are read at every replay
        self.slice_guards = set()     # the guards that ask where slices begin, after all others
        self.outside = None           # the guard that asks whether NumPy holds memory that is written
        self.takes = bool(diff.journal.taken)     # from an iterator: see Note [Taken first]
        self.operations = len(trace.code)
        self.draws = len(trace.draws)
        self.checks = sorted({op.__name__ for op, _ in (*diff.early, *diff.late)})
        self.bound = []               # weak references to arguments that have to be the same objects
        self.hits = 0
        order = {name: i for i, name in enumerate(dict.fromkeys(trace.numbers.values()))}
        specs = [v.spec for v in trace.values]
        self.head, self.python_checks = head_of(diff, specs)
        refuse_dear_checks([*self.python_checks, *diff.late], trace.code)
        rest, given = range(len(trace.code)), []
        if self.head is not None:
            rest, given = self.head.rest, self.head.gives
        numbers = {(at, number): order[trace.numbers[index, number]] for at, index in enumerate(rest)
                   for number in range(len(trace.code[index].params)) if (index, number) in trace.numbers}
        self.runner = Runner([trace.code[index] for index in rest], specs,
                             [*[slot for slot, _ in (*diff.read, *diff.drawn, *diff.fixed)], *given],
                             tuple([slot for slot in sorted(diff.needs) if slot not in given]),
                             (*diff.free, *[slot for slot in given if slot not in diff.needs]), numbers)
        moving = Moving(diff, self.head, [other.seen for other in others])
        self.seen = moving.seen
        self.runner.moved = moving.places(rest, len(order))
        if diff.gradient is not None:
            diff.gradient.runner.moved = moving.places(range(len(trace.code), len(moving.code)), len(order))
        writer = ReplayWriter(diff, self, dropped, [*order, *moving.names.values()], moving)
        self.source, space = writer.source, writer.space
        exec(compile(self.source, "<flambeau replay>", "exec"), space)
        self.replay = space.pop("replay")


def refuse_dear_checks(checks, code):
    """Refuse a recording much of which is computed on the side, one operation after the other, for checks of data."""
    count = len(needed_for(slots_of(checks), code)[0])
    if count > MAX_CHECKED_OPERATIONS and 4 * count > len(code):
        raise NotReplayable(f"checks of data look at what {count} of {len(code)} operations compute, which a replay "
                            "would compute twice")


class ReplayWriter:
    """The source of one replay, and the names that it uses."""

    def __init__(self, diff, replay, dropped, numbers, moving):
        self.diff, self.replay, self.dropped, self.numbers, self.moving = diff, replay, dropped, numbers, moving
        self.journal, self.number_log, self.capture = diff.journal, diff.capture.number_log, diff.capture
        self.space = {"modes": modes, "requires": requires, "content": content, "MISSING": MISSING,
                      "as_device": as_device, "dtypes": dtypes, "cell": new_storage,
                      "hidden": count_hidden_writes, "tensor": new_tensor,
                      "record": new_record, "recycled": recycled, "recycle": recycle, "renew": renew,
                      "put": put_results, "values": values_of, "math": math, "inf": math.inf, "nan": math.nan,
                      "same_value": same_value, "same_values": same_values, "size_of": size_of}
        self.misses = []              # the Miss of each guard
        self.twice = None             # id of a node that the result holds more than once → its name
        self.names = {}               # id of an object → its name
        self.cells = {}               # storage → its name
        self.loose = []               # storages that are others at every call
        self.paths = {}               # name of a number → where it stands
        self.rows = Guards()          # the guards that are no lines
        self.grads = []               # those that have lines, and perhaps need none; see _drop_grads
        self.bare = {id(edge.holder) for edge in self.journal.edges if edge.kind == "grad" and edge.child is None}
        self.things = set(self.journal.things)
        self.lines = ["def replay(args, kwargs, taken):", "  try:"]
        self.indent = "    "
        self._find_taken()
        self._modes()
        self.space["unmet"], self.space["misses"] = self.rows.first_unmet, self.misses
        self.line("if (k := unmet()) >= 0: return misses[k]")
        unseen = self._unseen_grads()
        self._reads(unseen, False)
        self._classes()
        self._functions()
        if self.journal.taken:
            self._numbers(False)
            self._take()
            self._reads(unseen, True)
        self._identities()
        self._no_overlap()
        self._numbers(True)
        self._slices()
        self._run()
        self._drop_grads()
        if TAKEN in self.lines:                              # which may have changed what was asked before
            at = self.lines.index(TAKEN)
            self.lines[at:at + 1] = self.lines[2:self.lines.index("  except Exception:")]
        self.source = "\n".join(self.lines)

    # --- what is taken from an iterator: see Note [Taken first] ------------------------------------------------------

    def _find_taken(self):
        """The ids of what was taken from an iterator, with what it holds, and the names of the numbers there, with
        those that were computed from them."""
        self.taken, self.taken_numbers = {id(self.journal.taken)}, set()
        for edge in self.journal.edges:
            if id(edge.holder) in self.taken:
                if type(edge.child) not in PLAIN_TYPES and edge.child is not MISSING:
                    self.taken.add(id(edge.child))
                self.taken_numbers.update(x._name for x in traced_in(self.capture.proxies.get(edge)))
        self.taken_numbers.update(leaf._name for leaf in self.diff.trace.versions.values())
        for name, (_, operands) in self.number_log.lines.items():
            if not self.taken_numbers.isdisjoint(operands):
                self.taken_numbers.add(name)

    def _reads(self, unseen, taken):
        """Guards of what was read: in what was `taken`, or anywhere else."""
        tuples = {id(edge.child) for edge, proxy in self.capture.proxies.items() if type(proxy) is tuple}
        for edge in self.journal.edges:
            if edge not in unseen and id(edge.holder) not in tuples and edge.asked and not edge.blind \
                    and (id(edge.holder) in self.taken) is taken:
                self._edge(edge)
        hidden = {id(edge.child) for edge in unseen}
        for tensor, path in self.journal.tensors.values():
            if id(tensor) not in self.names and id(tensor) not in hidden and (id(tensor) in self.taken) is taken:
                self._same_tensor(tensor, path)              # held by what cannot change, as a tuple
        for container, path, keys in self.journal.sizes:
            if (id(container) in self.taken) is taken:
                self._size(container, path, keys)
        self._absent(taken)

    def _take(self):
        """The lines that take it, between two rounds of the other guards."""
        self.space["take"], self.space["FAILED"] = take, FAILED
        path = self.journal.path(self.journal.iterator)
        self.replay.effects.append(f"takes the next item of {path}")
        self.lines += ["  except Exception:", "    return OFF"]
        self.indent = "  "
        self.guard(f"(b0 := take(taken, {self.names[id(self.journal.iterator)]})) is FAILED", f"{path} has a next item")
        self.indent = "    "
        self.lines += ["  try:", TAKEN]

    # --- names and lines ---------------------------------------------------------------------------------------------

    def const(self, thing, prefix="c"):
        """The name of an object, which is kept alive."""
        name = self.names.get(id(thing))
        if name is None:
            name = self.names[id(thing)] = self.fresh(thing, prefix)
        return name

    def fresh(self, thing, prefix="c"):
        name = f"{prefix}{len(self.space)}"
        self.space[name] = thing
        return name

    def line(self, text):
        self.lines.append(self.indent + text)

    def guard(self, condition, words):
        """The replay is off if `condition` holds; `words` say what has to be so instead."""
        number = self._number(words)
        self.space[f"M{number}"] = self.misses[number]
        self.line(f"if {condition}: return M{number}")
        return number

    def _number(self, words):
        number = len(self.replay.guards)
        self.replay.guards.append(words)
        self.misses.append(Miss(number))
        return number

    def row(self, table, words, name, *facts):
        """A guard that is a row of a table of `Guards`, where there are rows and what `name` means is known beforehand;
        gives its number, else None. `words` may be the number of a guard that has another row already."""
        if name not in self.space:
            return None
        number = words if words.__class__ is int else self._number(words)
        self.rows.add(table, number, self.space[name], *facts)
        return number

    def same(self, edge, text, child, words):
        """The guard that what is read by `text`, which reads an edge, is the object `child`; its number."""
        number = self._same_row(edge, text, child, words)
        if number is None:
            known = child if child is None or child is True or child is False else self.const(child)
            number = self.guard(f"{text} is not {known}", words)
        return number

    def _same_row(self, edge, text, child, words, *may_be_equal):
        holder = self.holder(edge)
        if edge.kind == "item":
            return self.row("items", words, holder, edge.key, child, *may_be_equal)
        if edge.kind in ("cell", "grad", "slot") or edge.kind == "attribute" and text == f"{holder}.{edge.key}":
            name = {"cell": "cell_contents", "grad": "_grad"}.get(edge.kind, edge.key)
            return self.row("attributes", words, holder, name, child, *may_be_equal)
        return self.row("entries", words, holder, edge.key, child, *may_be_equal) if edge.kind == "attribute" else None

    def holder(self, edge):
        thing = edge.holder
        if thing is self.journal.taken:
            return "b"
        if thing is self.journal.args or thing is self.journal.kwargs:
            return "args" if thing is self.journal.args else "kwargs"
        if isinstance(thing, Tensor) and id(thing) not in self.names:
            self._same_tensor(thing, edge.path)
        return self.const(thing)

    def item(self, edge):
        """An edge as something that can be assigned to."""
        holder, key = self.holder(edge), edge.key
        if edge.kind == "item":
            if isinstance(key, Tensor) and id(key) not in self.names:
                self._same_tensor(key, self.journal.tensors[id(key)][1])
            return f"{holder}[{key!r}]" if type(key) in (int, str) else f"{holder}[{self.const(key)}]"
        return f"{holder}.cell_contents" if edge.kind == "cell" else f"{holder}._grad" if edge.kind == "grad" else \
            f"{holder}.__dict__[{key!r}]"

    def reading(self, edge):
        """The expression that reads an edge; an attribute as such where nothing else can come of it."""
        if edge.holder is self.journal.taken:
            return "b0"
        if edge.kind == "slot":
            return f"{self.holder(edge)}.{edge.key}"
        if edge.kind == "referent":
            return f"{self.holder(edge)}()"
        if edge.kind == "item" and isinstance(edge.holder, dict) and type(edge.holder) is not dict:
            key = repr(edge.key) if type(edge.key) in (int, str) else self.const(edge.key)
            return f"dict.get({self.holder(edge)}, {key}, MISSING)"      # it may have methods of its own
        cls = type(edge.holder)
        if edge.kind == "attribute" and edge.key.isidentifier() and not hasattr(cls, edge.key) \
                and not hasattr(cls, "__getattr__") and cls.__getattribute__ is object.__getattribute__:
            return f"{self.holder(edge)}.{edge.key}"
        return self.item(edge)

    # --- guards ------------------------------------------------------------------------------------------------------

    def _unseen_grads(self):
        """The `.grad` of tensors that are not asked for, and that the call leaves alone: no matter for a replay."""
        diff = self.diff
        if self.journal.asks_grad:
            return set()
        used = {s for _, s in diff.read} | {s for s, *_ in diff.stored}
        used |= {tensor._storage for tensor in diff.new_tensors.values()} | diff.trace.versions.keys()
        moved = {id(edge) for edge, _ in diff.moves}
        found = {edge for edge in self.journal.edges if edge.kind == "grad" and id(edge) not in moved
                 and (edge.child is None or edge.child._storage not in used)}
        self.bare -= {id(edge.holder) for edge in found}
        inside = {id(edge.child) for edge in found if edge.child is not None}
        return found | {edge for edge in self.journal.edges if edge.kind == "grad" and id(edge.holder) in inside}

    def _modes(self):
        journal = self.journal
        self.guard(f"len(args) != {len(journal.args)} or len(kwargs) != {len(journal.kwargs)}",
                   f"{len(journal.args)} arguments by position, {len(journal.kwargs)} by name")
        if len(journal.kwargs) > 1:
            self.guard(f"(*kwargs,) != {self.fresh(tuple(journal.kwargs))}",
                       f"the names come in the order {', '.join(journal.kwargs)}")
        grad, inference, default, where = mode_state()
        words = f"grad mode is {'on' if grad else 'off'}" + ", inference mode on" * inference
        if _default_devices[-1] is where:
            number = self._number(words)
            self.rows.modes = ModesLook(number, modes)
            self.rows.add("items", number, vars(dtypes), "default", default)
            self.rows.add("items", number, _default_devices, -1, where)
            return
        self.guard(f"modes.grad is not {grad} or modes.inference is not {inference} or modes.level >= 0 or "
                   "modes.anomaly or modes.saved_hooks or modes.autocast is not None or "
                   f"dtypes.default is not {self.const(default)} or as_device(None) is not {self.const(where)}", words)

    def _edge(self, edge):
        child, proxy, path = edge.child, self.capture.proxies.get(edge), edge.path
        if edge.kind == "grad" and child is None and isinstance(edge.holder, Tensor):
            self.holder(edge)                                # asked with what the tensor looks like
            return
        if child is MISSING:
            holder = self.holder(edge)
            self.guard(f"content({holder}) is not MISSING" if edge.kind == "cell" else
                       f"hasattr({holder}, {edge.key!r})" if edge.kind == "slot" else
                       f"{edge.key!r} in {holder}" + ".__dict__" * (edge.kind == "attribute"), f"{path} is not there")
            return
        text = self.reading(edge)
        if type(proxy) in TRACED:                            # what was asked about it follows below
            type_name = type(child).__name__
            self.line(f"{proxy._name} = {text}")
            number = self.guard(f"{proxy._name}.__class__ is not {type_name}",
                                f"{path} is a{'n' * (type_name == 'int')} {type_name}")
            self.paths[proxy._name] = path
        elif type(proxy) is tuple:
            self._tuple(child, proxy, text, path)
        elif child is None or child is True or child is False:
            self.same(edge, text, child, f"{path} is {child}")
        elif type(child) in PLAIN_TYPES:
            number = None
            if type(child) in (int, str):                    # of other numbers some are equal and not the same
                number = self._same_row(edge, text, child, f"{path} == {short(child)}", True)
            if number is None:
                number = self._plain(child, text, path)
            if type(child) is int:
                self.replay.varies[number] = path
        elif id(child) in self.names:
            words = f"{path} is the same {type(child).__name__} as before"
            if self.names[id(child)] in self.space:
                self.same(edge, text, child, words)
            else:
                self.guard(f"{text} is not {self.names[id(child)]}", words)
        elif isinstance(child, Tensor):
            self._tensor(edge, child, text)
        elif isinstance(child, EQUALITY_TYPES):
            name = self.const(child)
            self.guard(f"(x := {text}) is not {name} and (x.__class__ is not {self.const(type(child))} or x != {name})",
                       f"{path} == {child!r}")
        elif edge.loose:
            self._container(edge, child, text)
        else:
            self.const(child)
            self.same(edge, text, child, f"{path} is the same {type(child).__name__} as before")

    def _tuple(self, child, proxy, text, path):
        """A tuple whose numbers are read at every replay."""
        name = self.names[id(proxy)] = f"g{len(self.names)}"
        self.line(f"{name} = {text}")
        self.guard(f"{name}.__class__ is not tuple or len({name}) != {len(child)}",
                   f"{path} is a tuple of {len(child)}")
        for i, (part, mine) in enumerate(zip(child, proxy, strict=True)):
            if type(mine) in TRACED:
                self.line(f"{mine._name} = {name}[{i}]")
                self.guard(f"{mine._name}.__class__ is not float", f"{path}[{i}] is a float")
                self.paths[mine._name] = f"{path}[{i}]"
            else:
                self._plain(part, f"{name}[{i}]", f"{path}[{i}]")

    def _functions(self):
        """The code of the functions that were gone into."""
        for function in self.journal.functions.values():
            if function.__code__.co_filename.startswith(PACKAGE):     # observers may have its body exchanged, no more
                continue
            name, words = self.const(function), f"{function.__qualname__} has the same code"
            if self.row("functions", words, name, function.__code__, function.__defaults__,
                        function.__kwdefaults__) is not None:
                continue
            self.guard(f"{name}.__code__ is not {self.const(function.__code__)} or "
                       f"{name}.__defaults__ is not {self.const(function.__defaults__)} or "
                       f"{name}.__kwdefaults__ is not {self.const(function.__kwdefaults__)}",
                       words)

    def _classes(self):
        """The classes of objects that were asked for attributes, and what these classes gave."""
        for thing, cls in self.journal.classes.values():
            if id(thing) not in self.journal.loose:
                name, words = self.const(thing), f"{self.journal.path(thing)} is a {cls.__name__}"
                if type(thing) is not cls or self.row("kinds", words, name, cls) is None:
                    self.guard(f"{name}.__class__ is not {self.const(cls)}", words)
        for cls in dict.fromkeys((*self.journal.mros, *[cls for cls, _ in self.journal.lookups])):
            name, words = self.const(cls), f"{cls.__name__} has the same bases"
            if self.row("attributes", words, name, "__mro__", cls.__mro__) is None:
                self.guard(f"{name}.__mro__ is not {self.fresh(cls.__mro__)}", words)
        for (cls, name), found in self.journal.lookups.items():
            owner, words = self.const(cls), f"{cls.__name__}.{name} is the same {type(found).__name__} as before"
            plain = getattr(cls, name) is found
            if not plain or self.row("attributes", words, owner, name, found) is None:
                self.guard(f"{owner}.{name}{'' if plain else '.__func__'} is not {self.const(found)}", words)

    def _absent(self, taken):
        """Names that were asked for and not found, in what was `taken`, or anywhere else."""
        for container, has_attributes, path, names in self.journal.absent.values():
            if (id(container) in self.taken) is not taken:
                continue
            name, words = self.const(container), f"{path} has no {', '.join(short(key) for key in names)}"
            if self.row("missing", words, name, bool(has_attributes), tuple(names)) is not None:
                continue
            namespace = name + ".__dict__" * has_attributes
            texts = [repr(key) if type(key) in (str, int) else self.const(key) for key in names]
            self.guard(" or ".join(f"{text} in {namespace}" for text in texts), words)

    def _plain(self, child, text, path):
        words = f"{path} == {short(child)}"
        if child is None or child is True or child is False:
            return self.guard(f"{text} is not {child}", f"{path} is {child}")
        if type(child) is complex or type(child) is float and (child != child or child == 0):   # minus zero is another
            return self.guard(f"not same_value({text}, {self.fresh(child)})", words)
        name = self.fresh(child)
        return self.guard(f"(x := {text}) is not {name} and (x.__class__ is not {self.const(type(child))} or "
                          f"x != {name})", words)

    def _tensor(self, edge, tensor, text):
        if edge.loose:
            name, known = f"v{len(self.names)}", tensor._storage in self.cells
            self.names[id(tensor)], first = name, len(self.lines)
            self.line(f"{name} = {text}")
            self._looks(tensor, name, edge.path, f"{name}.__class__ is not {self.const(type(tensor))} or ")
            if edge.kind == "grad" and not known and self.holder(edge) in self.space:
                self.grads.append((edge.holder, tensor, name, self.cells[tensor._storage], self.lines[first:]))
        else:
            self._same_tensor(tensor, edge.path, text, edge)

    def _same_tensor(self, tensor, path, text=None, edge=None):
        """A tensor that is known by identity, read by `text`, which reads an edge."""
        name = self.names[id(tensor)] = self.fresh(tensor, "T")
        if tensor._storage not in self.cells:
            self.cells[tensor._storage] = self.fresh(tensor._storage, "S")
        self._looks(tensor, name, path, "" if text is None else f"{text} is not {name} or ", ", the same tensor",
                    None if edge is None else (edge, text))

    def _looks(self, tensor, name, path, test, more="", read_from=None):
        """What a tensor looks like, and which memory it looks at. `test` comes before: that it stands where it is
        `read_from`, (edge, text that reads it), or that it is a tensor."""
        bare, needs, known = id(tensor) in self.bare, requires(tensor), self.cells.get(tensor._storage)
        words = f"{path} is {tensor._spec}{', has no grad' * bare}{', requires grad' * needs}{more}"
        look = TensorLook(tensor, bare, tensor._storage if known in self.space else None)
        argument = id(tensor) in self.journal.loose
        if argument:
            look.offset = -1
        elif look.storage is not None and name in self.space and \
                (read_from is None or self.holder(read_from[0]) in self.space):
            number = self.row("tensors", words, name, look)
            if read_from is None or self._same_row(*read_from, tensor, number) is not None:
                return
        test += f"{self.fresh(look.is_off)}({name})"
        if known is not None:
            test += f" or {name}._storage is not {known}"
        self.guard(test, words)
        if known is None:
            known = self.cells[tensor._storage] = f"s{len(self.cells)}"
            self.loose.append(tensor._storage)
            self.line(f"{known} = {name}._storage")
        if argument:
            self._begins(tensor, name, path)

    def _begins(self, tensor, name, path):
        """Where in its memory an argument begins: as recorded, or so many bytes further on: Note [Moving arguments]."""
        moves, itemsize = self.moving.arguments.get(tensor._storage), tensor._spec.dtype.itemsize
        further = f"({name}._offset - {tensor._offset}) * {itemsize}"
        if moves is None:
            number = self.guard(f"{name}._offset != {tensor._offset}", f"{path} begins at element {tensor._offset}")
            self.replay.varies[number] = beginning(path)
        elif moves in self.paths:
            self.guard(f"{further} != {moves}", f"{path} lies as it did beside other arguments")
        else:
            self.paths[moves] = beginning(path)
            self.line(f"{moves} = {further}")
            if (step := self.moving.alignment[tensor._storage]) > itemsize:
                self.guard(f"{moves} % {step}", f"{path} begins a multiple of {step} bytes further on")

    def _slices(self):
        """Where slices begin that were cut at numbers: see Note [Moving slices]."""
        names, told = self.moving.names, set()
        for one in self.journal.slices:
            moves, path = names.get(one.storage), f"where the slice of {one.path} begins"
            number = -1
            if moves is None:
                number = self.guard(f"{one.further} != 0", f"{path} is the same")
            elif moves != one.further:
                number = self.guard(f"{one.further} != {moves}", f"{path} lies as it did beside the others")
            elif one.storage not in told and (step := self.moving.alignment[one.storage]) > one.itemsize:
                number = self.guard(f"{moves} % {step}", f"{path} is a multiple of {step} bytes further on")
            self.replay.slice_guards.add(number)
            told.add(one.storage)
        self.replay.slice_guards.discard(-1)

    def _container(self, edge, child, text):
        """An argument that holds others, or one that is known by identity after all."""
        name = self.names[id(child)] = f"v{len(self.names)}"
        self.line(f"{name} = {text}")
        if id(child) in self.things:
            try:
                self.replay.bound.append(weakref.ref(child, self.dropped))
                known = self.fresh(self.replay.bound[-1]) + "()"
            except TypeError:
                known = self.fresh(child)
            self.guard(f"{name} is not {known}", f"{edge.path} is the same {type(child).__name__} as before")
            return
        if type(child) in VALUE_TYPES:
            self.guard(f"not same_value({name}, {self.fresh(child)})", f"{edge.path} == {child!r}")
            return
        test, words = f"{name}.__class__ is not {self.const(type(child))}", f"{edge.path} is a {type(child).__name__}"
        if isinstance(child, tuple):
            test, words = test + f" or len({name}) != {len(child)}", words + f" of {len(child)}"
        self.guard(test, words)

    def _size(self, container, path, keys):
        if isinstance(container, tuple):
            return
        owner = self.journal.owners.get(id(container))
        name = f"{self.names[id(owner)]}.__dict__" if id(owner) in self.journal.loose else self.const(container)
        if keys.__class__ is int:
            if self.row("sizes", f"{path} holds {keys}", name, keys) is None:
                self.guard(f"len({name}) != {keys}", f"{path} holds {keys}")
        elif keys.__class__ is tuple:
            self.guard(f"size_of({name}) != {self.fresh(keys)}", f"{path} has the same contents")
        else:
            words = f"{path} {'has the same' if isinstance(container, dict) else 'holds the same'} {len(keys)}" \
                + " keys" * isinstance(container, dict)
            if self.row("keys", words, name, keys) is None:
                self.guard(f"not same_values({name}, {self.fresh(keys)})", words)

    def _identities(self):
        """What is loose is, or is not, the same object as another: where the call asked, and where it writes to one."""
        asked = {(id(a), id(b)): (a, b, answer) for a, b, answer in self.journal.identities}
        for a, b, answer in asked.values():
            one, other = self.names.get(id(a)), self.names.get(id(b))
            if one is None or other is None:
                raise NotReplayable(f"{self.journal.path(a)} is compared with {self.journal.path(b)} by identity, and "
                                    "one of them is not guarded")
            words = f"{self.journal.path(a)} is {'' if answer else 'not '}{self.journal.path(b)}"
            self.guard(f"({one} is {other}) is not {answer}", words)
        written = {id(edge.holder): edge.holder for edge, _ in self.diff.moves if not isinstance(edge.holder, Tensor)}
        holders = {id(edge.holder): edge.holder for edge in self.journal.edges if not isinstance(edge.holder, Tensor)}
        for holder in written.values():
            for other in holders.values():
                if other is not holder and type(other) is type(holder) and id(other) in self.names \
                        and (id(holder) in self.journal.loose or id(other) in self.journal.loose):
                    self.guard(f"{self.const(holder)} is {self.names[id(other)]}",
                               f"{self.journal.path(holder)} is not {self.journal.path(other)}")

    def _no_overlap(self):
        """Memory that is written must overlap no other memory, as it did not, and may not be held outside."""
        diff, stored = self.diff, [storage for storage, *_ in self.diff.stored]
        sources = [source for _, source, *_ in diff.stored] + list(diff.new_storages.values()) \
            + ([source for _, source in diff.gradient.takes] if diff.gradient is not None else [])
        used = {storage for _, storage in diff.read}.union(stored)
        loose = [self.cells[s] for s in self.loose if s in used]
        if loose and stored:
            others = frozenset(id(s) for s in self.cells if s not in self.loose)
            self.line("d = {" + ", ".join(f"id({s})" for s in loose) + "}")
            self.guard(f"len(d) != {len(loose)} or not d.isdisjoint({self.const(others)})",
                       "tensors that shared no memory share none")
        for storage in stored:                               # what is written takes the place of all that was there
            if storage in self.loose:
                self.guard(f"{self.cells[storage]}.nbytes != {storage.nbytes}",
                           f"{self.diff.trace.storages[storage]} is all of its memory, or part of as much")
        kept_or_written = dict.fromkeys([*stored, *[what for origin, what in sources if origin == "entry"]])
        tests = [f"{self.cells[s]}.exported and {self.cells[s]}.still_exported()" for s in kept_or_written
                 if s in self.loose]
        tests += [f"{self.cells[s]}.readonly" for s in stored if s in self.loose]
        words = "nobody outside holds memory that is written or kept"
        if kept_or_written:
            self.replay.outside = outside = self.guard(" or ".join(tests), words) if tests else self._number(words)
            for storage in kept_or_written:
                if storage not in self.loose:
                    self.row("outside", outside, self.cells[storage])

    def _numbers(self, at_end):
        """The lines that numbers come from, and what was asked about them. Where something is taken from an iterator,
        it is called before that, for numbers that do not depend on it, and `at_end` for the others."""
        number_log, leaves = self.number_log, self.paths

        def is_now(names):
            return not self.journal.taken or self.taken_numbers.isdisjoint(names) is not at_end
        used = [*self.numbers, *[one.further for one in self.journal.slices],
                *[x._name for _, now in self.diff.moves for x in traced_in(now)],
                *[thing for tag, thing, _ in result_nodes(self.diff.result) if tag == "number"]]
        for storage, leaf in self.diff.trace.versions.items() if at_end else ():
            self.line(f"{leaf._name} = {self.cells[storage]}.version")
            leaves[leaf._name] = f"the version of {self.diff.trace.storages[storage]}"
        asked = [name for names in number_log.answers.values() for name in names]
        for name, text in number_log.needed([*used, *asked, *number_log.fixed]):
            if is_now([name]):
                self.line(f"{name} = {text}")
        for (text, answer), names in number_log.answers.items():
            if is_now(names):
                self.guard(f"({text}) is not {answer}", f"{self._said(text)} is {answer}")
        for name, value in number_log.fixed.items():
            if is_now([name]):
                self._plain(value, name, self._said(name))
        live, stack = set(), used
        while stack:
            name = stack.pop()
            live.add(name)
            stack += [n for n in number_log.lines.get(name, ("", ()))[1] if n not in live]
        self.replay.moving = [path for name, path in leaves.items() if name in live and name not in number_log.fixed]

    def _said(self, text):
        """Words of the source as the user knows them."""
        words = text.replace("(", " ( ").replace(")", " ) ").split()
        lines = self.number_log.lines
        found = [self.paths.get(w) or (f"({self._said(lines[w][0])})" if w in lines else w) for w in words]
        return " ".join(found).replace("( ", "(").replace(" )", ")")

    # --- the run, and after ------------------------------------------------------------------------------------------

    def _run(self):
        diff, replay = self.diff, self.replay
        self.indent = "  "
        self.space["OFF"] = Miss(len(replay.guards))
        replay.guards.append("everything that is read is still there")
        self.lines += ["  except Exception:", "    return OFF"]
        read = self._values([self.cells[storage] for _, storage in diff.read])
        storages, head = dict(diff.read), replay.head
        if diff.early:
            self.space["REFUSED"] = REFUSED
        if replay.python_checks:
            check = Checks(replay.python_checks, diff.trace.code[:], dict(diff.fixed), diff.free)
            self.space["check"] = check
            check.slots = [slot for slot in dict.fromkeys(check.needs) if slot in storages]
            cells = "".join(self.cells[storages[slot]] + ", " for slot in check.slots)
            if any(slot in self.moving.slots for slot in check.slots):       # whose contents may be remembered
                check.begin(self.moving)
                further = "".join(name + ", " for name in self.moving.names.values())
                self.line(f"if not check.look_further_on(({cells}), ({further})): return REFUSED")
            else:
                self.line(f"if not check(({cells})): return REFUSED")
        if head is not None:
            self.space["head"] = head
            self.line(f"h = head(({self._values([self.cells[storages[slot]] for slot in head.reads])}))")
            self.line("if h is None: return REFUSED")
        after = self._after()
        if diff.trace.draws:
            self.space["draw"] = Draws([(draw, spec) for draw, spec, _ in diff.trace.draws])
            self.line("r = draw()")
        given = read + "".join(f"r[{number}], " for _, number in diff.drawn)
        if diff.fixed:
            self.space["fixed"] = tuple(value for _, value in diff.fixed)
            given += "*fixed, "
        if diff.late:                                        # random numbers are drawn by now: a refusal is raised here
            slots = [slot for slot, _ in (*diff.read, *diff.drawn, *diff.fixed)]
            self.space["late"] = Checks(diff.late, diff.trace.code[:], {}).make
            self.line(f"late(dict(zip({self.fresh(slots)}, [i.ready() for i in ({given})])))")
        given += "*h, " * (head is not None)
        if replay.runner.wanted:
            self.space["run"] = replay.runner.run
            self.lines += [f"  m = [None] * {len(replay.runner.wanted) + 1}",
                           *[f"  {text}" for text in self.recycling], "  try:",
                           f"    run(({given}), ({''.join(name + ', ' for name in self.numbers)}), m)"]
            self.lines += [f"    {text}" for text in after]
            self.lines += ["  except BaseException:", "    if m[-1]:"]             # an interrupt: what has run has run
            self.lines += [f"      {text}" for text in after or ["pass"]]
            self.lines += ["    raise"]
        else:
            self.lines += [f"  {text}" for text in after]
        if head is not None:
            self.line("head.kept = h")
        self.line(f"return {self._expression(diff.result)}")

    def _values(self, cells):
        """The Values in storages of these names, as items of a tuple. Those in a row are fetched together."""
        found = []
        for known, names in groupby(cells, self.space.__contains__):
            names = list(names)
            if known and len(names) > 2:
                found.append(f"*values({self.fresh([self.space[name] for name in names])}), ")
            else:
                found += [f"{name}.value, " for name in names]
        return "".join(found)

    def _drop_grads(self):
        """Make rows of the guards of gradients that are only looked at, and then let go of."""
        uses = Counter(word for line in self.lines for word in set(re.findall(r"\w+", line)))
        last = next((line for line in self.lines if line.startswith("  del ")), "")
        gone = last.removeprefix("  del ").split(", ")
        for holder, tensor, name, cell, lines in self.grads:
            if name in gone and cell in gone and uses[name] == len(lines) + 1 and uses[cell] == 2:
                number = next(int(line.rpartition("return M")[2]) for line in lines if "return M" in line)
                bare = id(tensor) in self.bare
                self.rows.add("grads", number, holder, type(tensor), TensorLook(tensor, bare, None))
                for line in lines:
                    self.lines.remove(line)
                gone.remove(name)
                gone.remove(cell)
        if last:
            at = self.lines.index(last)
            self.lines[at:at + 1] = [f"  del {', '.join(gone)}"] if gone else []

    def _after(self):
        """The statements that do what the call did."""
        diff, after = self.diff, []
        index_of = {slot: i for i, slot in enumerate(self.replay.runner.wanted)}
        ahead = {} if self.replay.head is None else {slot: i for i, slot in enumerate(self.replay.head.gives)}
        passed = {}

        def contents(origin, what):
            if origin == "entry":
                if what not in passed:                       # read before anything is written
                    passed[what] = f"e{len(passed)}"
                    self.line(f"{passed[what]} = {self.cells[what]}.value")
                return passed[what]
            if origin == "made":
                return f"m[{index_of[what]}]" if what in index_of else f"h[{ahead[what]}]"
            return f"r[{what}]" if origin == "draw" else self.const(what)

        self._stores(after, contents, index_of)
        alone = self._alone()
        made = self._new_storages(after, contents, index_of, alone)
        rest = [tensor for tensor in diff.new_tensors.values() if tensor._storage not in alone]
        for number, tensor in enumerate(rest):
            name = self.names[id(tensor)] = f"w{number}"
            after.append(f"{name} = tensor({made.get(tensor._storage) or self.cells[tensor._storage]}, "
                         f"{self.fresh(facts_of(tensor))})")
            if tensor._storage in self.moving.names:
                further = self.moving.names[tensor._storage]
                after.append(f"{name}._offset += {further} // {tensor._spec.dtype.itemsize}")
        for tensor in rest:
            base = tensor._base
            if base is not None and (id(base) in diff.new_tensors or id(base) in self.journal.tensors):
                name = self.names[id(tensor)]
                after += [f"{name}._base = {self.names[id(base)]}", f"{name}._seen = {name}._storage.version"]
        if diff.gradient is not None:
            self._graph(diff.gradient, after, contents)
        self._moves(after, alone)
        return after

    def _stores(self, after, contents, index_of):
        """New contents of storages that were there before."""
        diff, words, rows = self.diff, self.replay.effects, []
        for storage, source, rose, path in diff.stored:
            name = self.cells[storage]
            if source[0] == "made" and source[1] in index_of and name in self.space and storage not in diff.hidden:
                rows.append((storage, index_of[source[1]], rose, storage.writer))
                words.append(f"writes to {path}")
                continue
            after.append(f"{name}.value = {contents(*source)}")
            if rose:
                count = f"hidden({name}, {rose}, {self.fresh(diff.hidden[storage])})" if storage in diff.hidden else \
                    f"{name}.version += {rose}"
                after += [count, f"{name}.writer = {self.fresh(storage.writer)}"]
            words.append(f"writes to {path}")
        if rows:
            after.append(f"put(m, {self.fresh(rows)})")

    def _new_storages(self, after, contents, index_of, alone):
        """{storage: its name} of the new ones. One in `alone` is that of a gradient, whose tensor is used again."""
        diff, words = self.diff, self.replay.effects
        made, self.recycling, renewed, gone = {}, [], [], []
        for number, (storage, source) in enumerate(diff.new_storages.items()):
            made[storage] = f"y{number}"
            facts = self.fresh((storage.nbytes, storage.device, storage.version, storage.inference))
            if storage not in alone:
                after.append(f"y{number} = cell({contents(*source)}, {facts})")
                continue
            # A gradient that takes the place of one that is not seen elsewhere: the old tensor, with new contents. The
            # replay lets go of it first, since its own variables would be another holder.
            edge, now = alone[storage]
            old, cell, new = self.names[id(edge.child)], self.cells[edge.child._storage], contents(*source)
            words.append(f"puts a tensor into {edge.path}")
            if self.holder(edge) in self.space:
                renewed.append((edge.holder, index_of[source[1]], self.space[facts], facts_of(now)))
                gone += [old, cell]
                continue
            self.recycling += [f"del {old}, {cell}", f"{new} = q{number} = recycled({self.holder(edge)})"]
            after.append(f"if {new} is not q{number}: {self.item(edge)} = "
                         f"tensor(cell({new}, {facts}), {self.fresh(facts_of(now))})")
        if renewed:
            self.recycling += [f"del {', '.join(gone)}", f"q = recycle(m, {(rows := self.fresh(renewed))})"]
            after.append(f"renew(m, q, {rows})")
        return made

    def _moves(self, after, alone):
        """What stands in another place than before."""
        words = self.replay.effects
        for edge, now in self.diff.moves:
            if isinstance(now, Tensor) and now._storage in alone:
                continue
            text = now._name if type(now) in TRACED else "None" if now is None else \
                "(" + "".join(word(x) + ", " for x in now) + ")" if type(now) is tuple else \
                self.fresh(now) if type(now) in PLAIN_TYPES else self.names[id(now)]
            set_by_name = isinstance(edge.holder, type) or edge.kind == "slot"
            after.append(f"setattr({self.holder(edge)}, {edge.key!r}, {text})" if set_by_name else
                         f"{self.item(edge)} = {text}")
            said = self._said(text) if traced_in(now) else short(now) if type(now) in PLAIN_TYPES else "a tensor"
            words.append(f"puts {said} into {edge.path}")

    def _graph(self, gradient, after, contents):
        """Give the results that had a graph the node of this replay."""
        self.space["graph"] = gradient.attach
        stored = {storage for storage, *_ in self.diff.stored}
        watched = [what for _, (origin, what) in gradient.takes if origin == "entry" and what not in stored]
        groups = ([self.names[id(t)] for t in gradient.live], [contents(*source) for _, source in gradient.takes],
                  [self.names[id(t)] for t in gradient.bounds], [self.cells[s] for s in watched], self.numbers)
        after.append("graph(" + ", ".join("(" + "".join(name + ", " for name in group) + ")" for group in groups) + ")")
        self.replay.effects.append(f"keeps {len(gradient.takes)} tensors for a backward of "
                                      f"{len(gradient.runner.code)} operations")

    def _alone(self):
        """{storage: (edge, tensor)} of new gradients that stand in one place only, where another one stood before.

        That one has no use after the call: not as a result or part of one, nor in another place or for a backward.
        """
        diff, tensors = self.diff, {}
        used = {storage for _, storage in diff.read} | {storage for storage, *_ in diff.stored}
        sources = list(diff.new_storages.values()) + [source for _, source, *_ in diff.stored]
        returned = {id(thing) for tag, thing, _ in result_nodes(diff.result) if tag == "tensor"}
        bases = {id(tensor._base) for tensor in diff.new_tensors.values()}
        for tensor in diff.new_tensors.values():
            tensors.setdefault(tensor._storage, []).append(tensor)
        kept = returned | bases | {id(now) for _, now in diff.moves}
        if diff.gradient is not None:
            kept |= {id(tensor) for tensor in (*diff.gradient.bounds, *diff.gradient.live)}
            used |= {what for _, (origin, what) in diff.gradient.takes if origin == "entry"}
        found = {}
        for edge, now in diff.moves:
            old = edge.child
            if edge.kind == "grad" and isinstance(now, Tensor) and isinstance(old, Tensor) and now._spec is old._spec \
                    and id(now) in diff.new_tensors and len(tensors[now._storage]) == 1 and id(now) not in returned \
                    and id(now) not in bases and now._base is None and old._storage not in used \
                    and id(old) not in kept and old._storage not in tensors and self.names[id(old)][0] == "v" \
                    and self.cells[old._storage][0] == "s" \
                    and diff.new_storages.get(now._storage, "")[:1] == ("made",) \
                    and diff.new_storages[now._storage][1] in self.replay.runner.wanted \
                    and sources.count(diff.new_storages[now._storage]) == 1 \
                    and sum(other is now for _, other in diff.moves) == 1 \
                    and diff.trace.values[diff.new_storages[now._storage][1]].spec is now._spec:
                found[now._storage] = edge, now
        return found

    def _expression(self, tree):
        """What the replay returns: a container that stands in it twice is made once."""
        if self.twice is None:
            found = Counter(id(node) for node in result_nodes(tree) if node[0] in ("sequence", "mapping"))
            self.twice = {node: None for node, count in found.items() if count > 1}
        if id(tree) not in self.twice:
            return self._built(tree)
        if self.twice[id(tree)] is None:
            self.twice[id(tree)] = f"r{len(self.twice)}_{sum(map(bool, self.twice.values()))}"
            return f"({self.twice[id(tree)]} := {self._built(tree)})"
        return self.twice[id(tree)]

    def _built(self, tree):
        tag, thing, parts = tree
        if tag in ("tensor", "known"):
            return "None" if thing is None else self.const(thing)
        if tag == "number":
            return thing
        if tag == "mapping":
            inside = "{" + ", ".join(f"{self.fresh(key)}: {self._expression(part)}" for key, part in parts) + "}"
            return inside if thing is dict else f"record({self.const(thing)}, {inside})"
        inside = ", ".join(map(self._expression, parts))
        if thing is list:
            return f"[{inside}]"
        inside = f"({inside},)" if parts else "()"
        return inside if thing is tuple else f"{self.const(thing)}._make({inside})" if hasattr(thing, "_fields") else \
            f"{self.const(thing)}({inside})"


def result_nodes(tree):
    """Every node of the tree of a result."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += [part[1] if node[0] == "mapping" else part for part in node[2]]

"""From a recorded call to a function that replays it.

`study` compares what was there before the call with what is there after it, and refuses what a replay could not repeat.
The rest becomes the source of one Python function: guards in a straight line, the inputs read from their storages, one
run of the instructions, and then what the call did: contents of storages, gradients, numbers, results.
"""
import gc
import math
import sys
import types
import weakref
from collections import deque

from ..autograd.modes import modes
from ..autograd.node import AccumulateGrad, requires
from ..base import dtypes
from ..base.errors import line_of
from ..base.spec import Size, place
from ..nn.parameter import Parameter
from ..tensor.protocol import own_state
from ..tensor.random import filled
from ..tensor.tensor import Tensor
from ..trace.record import Trace
from ..trace.value import Storage, Value
from .capture import Noted, evaluate, mode_state, tensor_state
from .replay import Runner
from .see import EQUAL, MISSING, PLAIN, content, is_record, keys_of, short
from .traced import TRACED

_refs = sys.getrefcount
_new = object.__new__


class Unfit(Exception):
    """Why a recorded call cannot be replayed. `again`: whether the next call may do better."""

    def __init__(self, reason, again=False, varying=(), others=()):
        super().__init__(reason)
        self.again, self.varying, self.others = again, varying, others


class Miss:
    """What a replay gives instead of a result: guard number `guard` does not hold, and nothing was done."""

    __slots__ = ("guard",)

    def __init__(self, guard):
        self.guard = guard


class Recording:
    """One way that a function was recorded; `replay(args, kwargs)` gives its result or a Miss."""

    def __init__(self, capture, dropped):
        self.dropped = dropped        # called when an argument that it is bound to is gone
        self.guards = []              # words for each guard
        self.effects = []             # words
        self.hits = 0
        Study(capture, self)

    def reads(self):
        """The numbers that are read at every replay, by where they stand."""
        return list(self.moving)


class Study:
    """The comparison and the writing of the source, top to bottom."""

    def __init__(self, capture, recording):
        self.capture, self.recording = capture, recording
        self.scene, self.book, self.trace = capture.scene, capture.book, capture.recorder
        self.space = {"modes": modes, "requires": requires, "Miss": Miss, "content": content, "MISSING": MISSING,
                      "cell": new_storage, "tensor": new_tensor, "record": new_record, "math": math, "inf": math.inf,
                      "nan": math.nan, "copysign": math.copysign, "deque": deque, "place": place, "dtypes": dtypes}
        self.names = {}               # id of an object → what it is called in the source
        self.kept = []                # objects that are known by their id
        self.guard_lines, self.after = [], []
        self._refuse_what_ran()
        self._compare()
        self._stores()
        out = self._results()
        self._inputs()
        self._checks()
        self._nobody_else()
        self._write(out)
        self._build()

    # --- what the call did -------------------------------------------------------------------------------------------

    def _refuse_what_ran(self):
        capture = self.capture
        if self.trace.reason is not None:
            raise Unfit(self.trace.reason)
        if capture.watch.reason is not None:
            raise Unfit(f"{capture.watch.reason} would not be repeated")
        unknown = [code for key, code in capture.watch.codes.items() if key not in self.scene.codes]
        if unknown:
            others = [f for code in unknown for f in gc.get_referrers(code)
                      if isinstance(f, types.FunctionType) and f.__code__ is code]
            raise Unfit(f"{unknown[0].co_name} was found only when it ran", again=True, others=others)
        if capture.modes_before != capture.modes_after:
            raise Unfit("the call changed the gradient mode or a default, and left it changed")

    def _compare(self):
        """Find what the call has put where: `self.moves` holds (edge, Tensor, None or Traced)."""
        scene = self.scene
        for held, path, before in (*scene.sizes, *scene.spaces):
            now = keys_of(held) if before.__class__ is tuple else frozenset(held) if before.__class__ is frozenset \
                else len(held)
            if now != before:
                old, new = (n if n.__class__ is int else len(n) for n in (before, now))
                raise Unfit(f"the call changed {path}: " + (f"it held {old} and holds {new}" if old != new else
                                                            "it has other keys"), again=True)
        numbers = dict(self.capture.moved)
        self.moves, varying = [], []
        for edge in scene.edges:
            if edge in numbers:
                self.moves.append((edge, numbers[edge]))
                continue
            now, before = edge.read(), edge.child
            if now is before or type(now) is type(before) and isinstance(now, PLAIN) and (now == before or now != now):
                continue
            kinds = (Tensor, type(None))
            if isinstance(now, kinds) and isinstance(before, kinds) and edge.writable() and not (
                    edge.kind != "grad" and sum(other.child is before for other in scene.edges) > 1):
                edge.loose = True
                self.moves.append((edge, now))
                continue
            if type(now) is type(before) is int:
                varying.append(edge.path)
            reason = f"the call changed {edge.path} from {short(before)} to {short(now)}"
            if type(now) is not int:
                raise Unfit(reason, again=True)
        if varying:
            raise Unfit(reason, again=True, varying=varying)
        for tensor, path, storage, before in self.capture.tensors_before:
            if tensor.storage is not storage:
                raise Unfit(f"the call gave {path} other memory")
            if tensor_state(tensor) != before:
                raise Unfit(f"the call changed {path}: its shape, its hooks or whether it requires grad", again=True)

    def _stores(self):
        """Which storages have other contents now: `self.stored` holds (storage, source of the contents)."""
        trace = self.trace
        self.needs, self.pieces = {}, {}                    # slots that a replay has to compute; constants
        self.draws = {value: i for i, (_, _, value) in enumerate(trace.draws)}
        self.entry = {}                                     # storage → its Value before
        self.stored = []
        for value, storage in trace.entry.items():
            self.entry[storage] = value
        for storage, path in trace.storages.items():
            version = self.capture.versions[storage]
            if storage.value is not self.entry.get(storage) or storage.version != version:
                self.stored.append((storage, self._source(storage.value, path), storage.version - version, path))

    def _source(self, value, path):
        """Where contents come from: ("made", slot), ("entry", storage), ("draw", number), ("constant", Value)."""
        trace = self.trace
        if value.trace is trace:
            self.needs[value.slot] = None
            return "made", value.slot
        if value in trace.entry:
            return "entry", trace.entry[value]
        if value in self.draws:
            return "draw", self.draws[value]
        if value in trace.born:
            return "constant", value
        raise Unfit(f"the contents of {path} came from somewhere that cannot be seen")

    # --- results -----------------------------------------------------------------------------------------------------

    def _results(self):
        """The tensors that a replay makes, and the structure of what it returns."""
        self.new_storages, self.new_tensors = {}, {}         # each → number, in order
        self.tensor_of = {}                                  # id of a result → (tensor, number)
        for edge, now in self.moves:
            if isinstance(now, Tensor):
                self._result(now, edge.path)
        return self._structure(self.capture.out)

    def _result(self, tensor, path):
        """See that a replay can make this tensor."""
        if id(tensor) in self.scene.tensors or id(tensor) in self.tensor_of:
            return
        if type(tensor) not in (Tensor, Parameter) or own_state(tensor):
            raise Unfit(f"{path} is a {type(tensor).__name__} with something of its own: only plain tensors are made "
                        "again")
        if requires(tensor) and tensor.grad_fn is not None and is_live(tensor):
            raise Unfit(f"{path} requires grad, and its graph is still there: put backward and the optimizer's step "
                        "into the compiled function, or call it under torch.no_grad()")
        if tensor._grad is not None or tensor._retains is not None or tensor._leaf_hooks or tensor._post_hooks:
            raise Unfit(f"{path} is a new tensor with a gradient or a hook")
        storage = tensor.storage
        if storage.value is None:
            raise Unfit(f"{path} is on the meta device")
        if storage not in self.trace.storages and storage not in self.new_storages:
            if storage.exported:
                raise Unfit(f"{path} shares its memory with the outside")
            self.new_storages[storage] = len(self.new_storages), self._source(storage.value, path)
        self.tensor_of[id(tensor)] = tensor, f"w{len(self.tensor_of)}"

    def _structure(self, out):
        """`out` as a tree of (kind, thing, children)."""
        if isinstance(out, Tensor):
            self._result(out, "the result")
            return "tensor", out, ()
        if type(out) in TRACED:
            return "number", out._name, ()
        if isinstance(out, (*PLAIN, *EQUAL)) or out is self.capture.fn:
            return "constant", out, ()
        if id(out) in self.scene.seen:
            return "seen", out, ()
        kind = type(out)
        if kind in (list, tuple, deque, Size) or isinstance(out, tuple) and hasattr(out, "_fields"):
            return "sequence", kind, [self._structure(part) for part in out]
        if kind is dict or is_record(kind):
            parts = out if kind is dict else vars(out)
            if not all(isinstance(key, PLAIN) for key in parts):
                raise Unfit("the result is a dictionary with keys that are more than strings and numbers")
            return "mapping", kind, [(key, self._structure(part)) for key, part in parts.items()]
        if isinstance(out, (types.FunctionType, type, types.ModuleType, dtypes.dtype)):
            return "constant", out, ()
        raise Unfit(f"the result holds a {kind.__name__}: tensors, numbers, strings, and lists, tuples, dictionaries "
                    "and dataclasses of them can be made again")

    # --- what goes in ------------------------------------------------------------------------------------------------

    def _inputs(self):
        """The slots of ready Values, by source: those read from storages first, then draws, then constants."""
        read, drawn, fixed = [], [], []
        for value, slot in self.trace.slots.items():
            kind, what = self._source(value, "an input")
            (read if kind == "entry" else drawn if kind == "draw" else fixed).append((slot, what))
        self.read, self.drawn, self.fixed = read, drawn, fixed
        over = {storage for storage, *_ in self.stored}
        sources = [source for _, source, *_ in self.stored] + [source for _, source in self.new_storages.values()]
        passed = {what for kind, what in sources if kind == "entry"}
        self.free = tuple(slot for slot, storage in read if storage in over and storage not in passed)

    def _checks(self):
        """The checks that have to be repeated, with slots in the place of Values: before the draws, and after."""
        trace = self.trace
        place = {value: slot for value, slot in trace.slots.items()}
        origin = {slot: "entry" for slot, _ in self.read} | {slot: "draw" for slot, _ in self.drawn}
        self.early, self.late = [], []
        for op, given in trace.checks:
            kinds = set()
            for seen in (n for g in given for n in (g if g.__class__ is list else (g,)) if n.__class__ is Noted):
                value = seen.value
                if value.trace is trace:
                    seen.slot = value.slot
                    kinds |= {origin.get(s) for s in self._reads(value.slot)}
                elif value in trace.entry and value not in place:        # looked at by the check alone
                    slot = place[value] = len(trace.values)
                    trace.values.append(value)
                    trace.slots[value] = slot
                    trace.last.append(0)
                    self.read.append((slot, trace.entry[value]))
                    origin[slot] = "entry"
                if value in place:
                    seen.slot = place[value]
                    kinds.add(origin.get(seen.slot))
                elif seen.slot is None:
                    seen.value = Value.of(value.array, value.spec)       # a constant
                    continue
                seen.value = None
            if "draw" in kinds:
                self.late.append((op, given))
            elif "entry" in kinds:
                self.early.append((op, given))
        trace.checks = []

    def _reads(self, slot):
        """The inputs that a slot comes from."""
        live, found = {slot}, set()
        for index in range(len(self.trace.code) - 1, -1, -1):
            entry, slots, _, params, first = self.trace.code[index]
            if any(s in live for s in range(first, first + len(entry.outs))):
                live.update(slots)
                if any((index, n) in self.trace.numbers for n in range(len(params))):
                    raise Unfit(f"{entry.op.__name__} gives positions that depend on a number which may change")
        for value, at in self.trace.slots.items():
            if at in live:
                found.add(at)
        return found

    def _nobody_else(self):
        """Refuse if somebody holds a result that is neither returned nor found where the function keeps things."""
        for once_more in (True, False):
            held = [slot for entry, _, _, _, first in self.trace.code for slot in range(first, first + len(entry.outs))
                    if slot not in self.needs and _refs(self.trace.values[slot]) > 2]
            if not held:
                return
            if once_more:
                gc.collect()                                 # it may be only a cycle that nobody reaches
        index = next(i for i, (entry, _, _, _, first) in enumerate(self.trace.code)
                     if first <= held[0] < first + len(entry.outs))
        raise Unfit(f"a result of {self.trace.code[index][0].op.__name__} is kept somewhere that cannot be seen from "
                    "the function")

    # --- the source --------------------------------------------------------------------------------------------------

    def const(self, thing, prefix="c"):
        """The name of an object in the source; it is kept alive."""
        name = self.names.get(id(thing))
        if name is None:
            name = self.names[id(thing)] = f"{prefix}{len(self.space)}"
            self.space[name] = thing
        return name

    def guard(self, condition, words):
        """The replay is off if `condition` holds."""
        number = len(self.recording.guards)
        self.recording.guards.append(words)
        name = f"M{number}"
        self.space[name] = Miss(number)
        self.guard_lines.append(f"if {condition}: return {name}")

    def line(self, text):
        self.guard_lines.append(text)

    def holder(self, edge):
        thing = edge.holder
        if thing is self.scene.args:
            return "args"
        if thing is self.scene.kwargs:
            return "kwargs"
        return self.const(thing)

    def reading(self, edge):
        """The expression that reads an edge."""
        held, key = self.holder(edge), edge.key
        if edge.kind == "item":
            return f"{held}[{key!r}]" if type(key) in (int, str) else f"{held}[{self.const(key, 'k')}]"
        if edge.kind == "cell":
            return f"{held}.cell_contents"
        if edge.kind == "grad":
            return f"{held}._grad"
        simple = key.isidentifier() and not any(key in vars(kind) for kind in type(edge.holder).__mro__) \
            and not isinstance(edge.holder, type) and not hasattr(type(edge.holder), "__getattr__") \
            and type(edge.holder).__getattribute__ in (object.__getattribute__, types.ModuleType.__getattribute__)
        return f"{held}.{key}" if simple or edge.kind == "slot" else f"{held}.__dict__[{key!r}]"

    def writing(self, edge, text):
        """The statement that puts `text` where an edge is."""
        held, key = self.holder(edge), edge.key
        if edge.kind == "item":
            return f"{held}[{key!r}] = {text}" if type(key) in (int, str) else f"{held}[{self.const(key, 'k')}] = {text}"
        if edge.kind == "cell":
            return f"{held}.cell_contents = {text}"
        if edge.kind == "grad":
            return f"{held}._grad = {text}"
        return f"setattr({held}, {key!r}, {text})" if isinstance(edge.holder, type) else \
            f"{held}.__dict__[{key!r}] = {text}"

    def _write(self, out):
        self._modes()
        self.storage_names, self.loose_storages = {}, []
        for edge in self.scene.edges:
            self._edge(edge)
        for held, path, keys in self.scene.sizes:
            if not isinstance(held, tuple):
                self._size(held, path, keys)
        for function in self.scene.functions:
            if function.__code__ is not None:
                self.guard(f"{self.const(function)}.__code__ is not {self.const(function.__code__)}",
                           f"{function.__qualname__} has the same code")
        self._apart()
        self._numbers()
        self._effects()
        self.result = self._expression(out)

    def _modes(self):
        scene = self.scene
        self.guard(f"len(args) != {len(scene.args)} or len(kwargs) != {len(scene.kwargs)}",
                   f"called with {len(scene.args)} arguments by position and {len(scene.kwargs)} by name")
        grad, inference, default, device = mode_state()
        words = f"grad mode {'on' if grad else 'off'}, inference mode {'on' if inference else 'off'}, {default}, {device}"
        self.guard(f"modes.grad is not {grad} or modes.inference is not {inference} or modes.level >= 0 or "
                   f"modes.anomaly or modes.saved_hooks or dtypes.default is not {self.const(default)} or "
                   f"place(None) is not {self.const(device)}", words)

    def _edge(self, edge):
        child, proxy = edge.child, self.capture.proxies.get(edge)
        if id(edge.holder) not in self.names and isinstance(edge.holder, Tensor) and edge.kind == "grad" \
                and edge.holder.__class__ is not None and edge.loose and id(edge.holder) not in self.scene.tensors:
            return
        text = self.reading(edge)
        if type(proxy) in TRACED:
            self._number(edge, proxy, text)
        elif child is MISSING:
            test = f"content({self.holder(edge)}) is not MISSING" if edge.kind == "cell" else \
                f"{edge.key!r} in {self.holder(edge)}"
            self.guard(test, f"{edge.path} is not there")
        elif isinstance(child, PLAIN):
            self._plain(child, text, edge.path)
        elif id(child) in self.names:
            self.guard(f"{text} is not {self.names[id(child)]}", f"{edge.path} is the same object")
        elif isinstance(child, Tensor):
            self._tensor(edge, child, text)
        elif isinstance(child, EQUAL):
            name = self.const(child)
            self.guard(f"(x := {text}) is not {name} and (x.__class__ is not {self.const(type(child))} or x != {name})",
                       f"{edge.path} == {child!r}")
        elif edge.loose and edge.kind != "grad":
            self._container(edge, child, text)
        else:
            self.guard(f"{text} is not {self.const(child)}", f"{edge.path} is the same {type(child).__name__}")

    def _plain(self, child, text, path):
        if child is None or child is True or child is False:
            self.guard(f"{text} is not {child}", f"{path} is {child}")
            return
        kind, words = self.const(type(child)), f"{path} == {short(child)}"
        if type(child) is float and child != child:
            self.guard(f"(x := {text}).__class__ is not float or x == x", words)
        elif type(child) is float and child == 0:
            self.guard(f"(x := {text}).__class__ is not float or x or copysign(1, x) != {math.copysign(1, child)}", words)
        else:
            name = f"p{len(self.space)}"                     # by its own name: equal constants may be one object
            self.space[name] = child
            self.guard(f"(x := {text}) is not {name} and (x.__class__ is not {kind} or x != {name})", words)

    def _number(self, edge, proxy, text):
        """A number that is read at every replay. What was fixed about it is asked after all of them are read."""
        self.line(f"{proxy._name} = {text}")
        kind = type(edge.child).__name__
        self.guard(f"{proxy._name}.__class__ is not {kind}", f"{edge.path} is a {kind}")
        self.number_paths[proxy._name] = edge.path

    number_paths: dict = {}

    def _tensor(self, edge, tensor, text):
        kind, words = tensor.spec, f"{edge.path} is {tensor.spec}"
        needs = requires(tensor)
        if edge.loose:
            name = self.names[id(tensor)] = f"v{len(self.names)}"
            self.kept.append(tensor)
            self.line(f"{name} = {text}")
            test = f"{name}.__class__ is not {self.const(type(tensor))} or {name}.spec is not {self.const(kind)}"
        else:
            name = self.const(tensor, "T")
            self.guard(f"{text} is not {name}", f"{edge.path} is the same tensor")
            test = f"{name}.spec is not {self.const(kind)}"
        test += f" or {name}.offset != {tensor.offset}" if tensor.offset else f" or {name}.offset"
        if not needs:
            test += f" or {name}._node is not None or {name}._requires_grad"
            test += f" or {name}._base is not None and requires({name})"
        else:
            test += f" or {name}._requires_grad is not {tensor._requires_grad}"
            test += f" or {name}._node is {'not ' if tensor._node is None else ''}None"
            for hooks in ("_leaf_hooks", "_post_hooks"):
                count = len(getattr(tensor, hooks) or ())
                test += f" or {name}.{hooks} is not None" if not count else f" or len({name}.{hooks}) != {count}"
            words += ", requires grad"
        storage = tensor.storage
        known = self.storage_names.get(storage)
        if edge.loose and known is None:
            self.guard(test, words)
            known = self.storage_names[storage] = f"s{len(self.storage_names)}"
            self.line(f"{known} = {name}.storage")
            self.loose_storages.append(storage)
            return
        if known is None:
            known = self.storage_names[storage] = self.const(storage, "S")
        self.guard(f"{test} or {name}.storage is not {known}", words)

    def _container(self, edge, child, text):
        """An argument that holds others, or one that is known by identity after all."""
        name = self.names[id(child)] = f"v{len(self.names)}"
        self.kept.append(child)
        self.line(f"{name} = {text}")
        if any(thing is child for thing, _ in self.scene.things):
            self.kept.pop()
            try:
                held = weakref.ref(child, self.recording.dropped)
                known = f"c{len(self.space)}()"
            except TypeError:
                held, known = child, f"c{len(self.space)}"
            self.space[known.removesuffix("()")] = held
            self.guard(f"{name} is not {known}", f"{edge.path} is the same {type(child).__name__}")
            return
        kind = self.const(type(child))
        if isinstance(child, tuple):
            self.guard(f"{name}.__class__ is not {kind} or len({name}) != {len(child)}",
                       f"{edge.path} is a {type(child).__name__} of {len(child)}")
        else:
            self.guard(f"{name}.__class__ is not {kind}", f"{edge.path} is a {type(child).__name__}")

    def _size(self, held, path, keys):
        name = self.const(held)
        if keys.__class__ is int:
            self.guard(f"len({name}) != {keys}", f"{path} holds {keys}")
        elif keys.__class__ is frozenset:
            self.guard(f"{name} != {self.const(keys)}", f"{path} holds the same {len(keys)}")
        elif keys == tuple(held):
            self.guard(f"(*{name},) != {self.const(keys)}", f"{path} has the same {len(keys)} keys")
        else:
            self.guard(f"(*map(id, {name}),) != {self.const(keys)}", f"{path} has the same {len(keys)} keys")

    def _apart(self):
        """Where something is written, storages that were apart have to be apart again, and not shared with the outside."""
        if not self.stored:
            return
        used = {storage for _, storage in self.read} | {storage for storage, *_ in self.stored}
        loose = [self.storage_names[s] for s in self.loose_storages if s in used]
        if loose:
            fixed = frozenset(id(s) for s in self.storage_names if s not in self.loose_storages)
            self.line("d = {" + ", ".join(f"id({s})" for s in loose) + "}")
            self.guard(f"len(d) != {len(loose)} or not d.isdisjoint({self.const(fixed)})",
                       "the tensors do not share memory")
        written = [self.storage_names[storage] for storage, *_ in self.stored]
        self.outside = len(self.recording.guards)
        self.guard(" or ".join(f"{s}.exported and {s}.still_exported()" for s in written),
                   "nobody outside holds the memory that is written")

    outside = None

    def _numbers(self):
        """The lines that the numbers of the instructions come from, and what was asked and fixed about numbers."""
        book, used = self.book, dict.fromkeys(self.trace.numbers.values())
        used.update({now._name: None for _, now in self.moves if type(now) in TRACED})
        used.update({name: None for name in self._number_results()})
        self.number_order = list(dict.fromkeys(self.trace.numbers.values()))
        asked = {name for names in book.answers.values() for name in names} | set(book.fixed)
        for name, text in book.needed([*used, *asked]):
            self.line(f"{name} = {text}")
        for (text, answer), _ in book.answers.items():
            self.guard(f"({text}) is not {answer}", f"({self._said(text)}) is {answer}")
        for name, value in book.fixed.items():
            self._plain(value, name, self._said(name))
        leaves = self.number_paths
        live, stack = set(), list(used)
        while stack:
            name = stack.pop()
            if name in leaves:
                live.add(name)
            elif name in book.lines:
                stack += book.lines[name][1]
        self.recording.moving = [leaves[name] for name in leaves if name in live and name not in book.fixed]

    def _said(self, text):
        """A line as the user would know it."""
        for name in sorted(self.number_paths, key=len, reverse=True):
            text = text.replace(name, self.number_paths[name])
        return text

    def _number_results(self):
        stack, found = [self.tree], []
        while stack:
            kind, thing, parts = stack.pop()
            if kind == "number":
                found.append(thing)
            stack += [part[1] if kind == "mapping" else part for part in parts]
        return found

    def _effects(self):
        """The statements after the run."""
        words, self.before = self.recording.effects, []
        place = {slot: i for i, slot in enumerate(sorted(self.needs))}
        passed = {}

        def contents(source):
            kind, what = source
            if kind == "made":
                return f"m[{place[what]}]"
            if kind == "draw":
                return f"r[{what}]"
            if kind == "constant":
                return self.const(what)
            if what not in passed:                           # read before anything is written
                passed[what] = f"e{len(passed)}"
                self.before.append(f"{passed[what]} = {self.storage_names[what]}.value")
            return passed[what]

        for storage, source, count, path in self.stored:
            name = self.storage_names[storage]
            self.after.append(f"{name}.value = {contents(source)}")
            if count:
                self.after.append(f"{name}.version += {count}")
                self.after.append(f"{name}.writer = {self.const(storage.writer)}")
            words.append(f"{path} is written")
        for storage, (number, source) in self.new_storages.items():
            facts = (storage.nbytes, storage.device, storage.version, storage.inference)
            self.space[f"f{number}"] = facts
            self.after.append(f"y{number} = cell({contents(source)}, f{number})")
        for tensor, name in self.tensor_of.values():
            storage = tensor.storage
            cell = f"y{self.new_storages[storage][0]}" if storage in self.new_storages else self.storage_names[storage]
            cut = tensor._cut
            if requires(tensor) and tensor.grad_fn is not None:
                cut = ("flambeau.compile: the graph was used up inside the function, and a replay makes none",
                       tensor.site)
            facts = (type(tensor), tensor.spec, tensor.offset, tensor.site, cut,
                     tensor._requires_grad and tensor._node is None, tensor._view_of)
            self.space["F" + name] = facts
            self.after.append(f"{name} = tensor({cell}, F{name})")
        for tensor, name in self.tensor_of.values():
            base = tensor._base
            known = None if base is None else self.tensor_of[id(base)][1] if id(base) in self.tensor_of else \
                self.names.get(id(base)) if id(base) in self.scene.tensors else None
            if known is not None:
                self.after.append(f"{name}._base = {known}")
                self.after.append(f"{name}._seen = {name}.storage.version")
        for edge, now in self.moves:
            if type(now) in TRACED:
                self.after.append(self.writing(edge, now._name))
                words.append(f"{edge.path} = {self._said(now._name)}")
            else:
                self.after.append(self.writing(edge, "None" if now is None else self._tensor_name(now)))
                words.append(f"{edge.path} is {'None' if now is None else 'a new tensor'}")

    def _tensor_name(self, tensor):
        return self.tensor_of[id(tensor)][1] if id(tensor) in self.tensor_of else self.names[id(tensor)]

    def _expression(self, tree):
        """What the replay returns, as an expression."""
        kind, thing, parts = tree
        if kind == "tensor":
            return self._tensor_name(thing)
        if kind == "number":
            return thing
        if kind in ("constant", "seen"):
            return repr(thing) if thing in (None, True, False) and type(thing) in (type(None), bool) else \
                self.const(thing)
        if kind == "mapping":
            inside = "{" + ", ".join(f"{key!r}: {self._expression(part)}" for key, part in parts) + "}"
            return inside if thing is dict else f"record({self.const(thing)}, {inside})"
        inside = ", ".join(map(self._expression, parts))
        if thing is list:
            return f"[{inside}]"
        inside = f"({inside},)" if parts else "()"
        if thing is tuple:
            return inside
        return f"{self.const(thing)}._make({inside})" if hasattr(thing, "_fields") else f"{self.const(thing)}({inside})"

    def _build(self):
        recording, trace = self.recording, self.trace
        wanted = tuple(sorted(self.needs))
        order = {name: i for i, name in enumerate(self.number_order)}
        runner = Runner(list(trace.code), [v.spec for v in trace.values],
                        [slot for slot, _ in (*self.read, *self.drawn, *self.fixed)], wanted, self.free,
                        {at: order[name] for at, name in trace.numbers.items()})
        fixed = tuple(value for _, value in self.fixed)
        self.space["run"], self.space["fixed"] = runner.run, fixed
        lines = ["def replay(args, kwargs):", "  try:"]
        lines += [f"    {text}" for text in self.guard_lines]
        lines += ["  except Exception:", "    return OFF"]
        self.space["OFF"] = Miss(len(recording.guards))
        recording.guards.append("everything that was read is still there")
        values = "".join(f"{self.storage_names[storage]}.value, " for _, storage in self.read)
        if self.early:
            self.space["check"] = Checks(self.early, runner, [slot for slot, _ in self.read])
            lines += [f"  if not check(({values})): return REFUSED"]
            self.space["REFUSED"] = Miss(-1)
        lines += [f"  {text}" for text in self.before]
        if trace.draws:
            self.space["draw"] = Draws([(draw, kind) for draw, kind, _ in trace.draws])
            lines += ["  r = draw()"]
        given = values + "".join(f"r[{number}], " for _, number in self.drawn)
        if self.late:
            self.space["late"] = Checks(self.late, runner, [slot for slot, _ in (*self.read, *self.drawn)], True)
            lines += [f"  late(({given}))"]
        numbers = "".join(f"{name}, " for name in self.number_order)
        after = self.after or ["pass"]
        if trace.code and wanted:
            lines += [f"  m = [None] * {len(wanted) + 1}", "  try:",
                      f"    run(({given}{'*fixed, ' if fixed else ''}), ({numbers}), m)"]
            lines += [f"    {text}" for text in after]
            lines += ["  except BaseException:", "    if m[-1] is not None:"]      # an interrupt: what has run has run
            lines += [f"      {text}" for text in after]
            lines += ["    raise"]
        else:
            lines += [f"  {text}" for text in after]
        lines += [f"  return {self.result}"]
        source = "\n".join(lines)
        exec(compile(source, "<flambeau replay>", "exec"), self.space)
        recording.replay, recording.source, recording.runner = self.space.pop("replay"), source, runner
        recording.outside = self.outside
        recording.operations = len(trace.code)
        recording.draws = len(trace.draws)
        recording.checks = sorted({op.__name__ for op, _ in (*self.early, *self.late)})
        recording.kept = None

"""Find out what a recorded call did, by comparing what was there before it with what is there after it.

What a replay could not repeat is refused here, with the reason in words. What is left is what `source.py` writes down:
which storages got which contents, which places hold other tensors or numbers, what the result is made of, which inputs
the instructions read, and which checks of data go with them.
"""
import gc
import types
from collections import deque

from ..base import dtypes
from ..base.ownership import RESULT, counts
from ..base.spec import Size
from ..tensor.overrides import has_override
from ..tensor.tensor import Tensor
from ..trace.recording.instructions import needed_for
from .capture import history, tensor_state
from .gradient import Gradient, effect_slots, is_live
from .guards import same_value, same_values
from .journal import EQUALITY_TYPES, MISSING, PLAIN_TYPES, is_record, short, size_of
from .recording import noted_in
from .traced import TRACED


class NotReplayable(Exception):
    """Why a recorded call cannot be replayed. `again`: whether the next call may do better, and what to know then."""

    def __init__(self, reason, again=False, varying=()):
        super().__init__(reason)
        self.again, self.varying = again, varying


class Diff:
    """What one recorded call did."""

    def __init__(self, capture):
        self.capture, self.journal, self.trace = capture, capture.journal, capture.recording
        self.needs = {}               # slots that a replay has to compute
        self.moves = []               # (edge, Tensor, None, Traced or tuple of numbers): what the call has put where
        self.stored = []              # (storage, source of its contents, by how much its version rose, path)
        self.hidden = {}              # storage that was written through `.data` → the looks (spec, offset) it was by
        self.new_storages = {}        # storage that the call made → source of its contents
        self.new_tensors = {}         # id → tensor that the call made and that stays
        self.draws = {value: i for i, (_, _, value) in enumerate(self.trace.draws)}
        self._what_ran()
        self._containers()
        self._edges()
        self._tensors()
        self._stores()
        for edge, now in self.moves:
            if isinstance(now, Tensor):
                self._result(now, edge.path)
        self.nodes = {}               # id of a container in the result → its node, where it is through
        self.result = self._structure(capture.out)
        self.gradient = None if capture.differentiated is None else Gradient(self)
        split = len(self.trace.code) if capture.differentiated is None else capture.differentiated.split
        self.needs.update(dict.fromkeys(effect_slots(self.trace.code[:split])))
        self._inputs()
        self._checks()
        self._refuse_other_holders()

    # --- what it did to what was there -------------------------------------------------------------------------------

    def _what_ran(self):
        capture = self.capture
        if self.trace.reason is not None and not self.trace.again:
            raise NotReplayable(self.trace.reason)
        if self.journal.refusal is not None:
            raise NotReplayable(self.journal.refusal)
        effect = capture.follower.effect or capture.watch.reason
        if effect is not None:
            raise NotReplayable(f"{effect} would not be repeated")
        if capture.watch.unknown is not None:
            raise NotReplayable(capture.watch.unknown)
        if self.trace.reason is not None:
            raise NotReplayable(self.trace.reason, again=True)
        if capture.drawn_before != capture.drawn_after:
            raise NotReplayable("the call drew from NumPy's random state, and a replay would not: draw with flambeau")
        if capture.modes_before != capture.modes_after:
            raise NotReplayable("the call changed the gradient mode or a default, and left it changed")

    def _containers(self):
        for container, path, before in self.journal.sizes:
            now = size_of(container)
            if now != before if before.__class__ is not list else not same_values(now, before):
                old, new = (n if n.__class__ is int else len(n) for n in (before, now))
                change = f"it held {old} and now holds {new}" if old != new else "it holds something else"
                raise NotReplayable(f"the call changed {path}: {change}", again=True)

    def _edges(self):
        numbers, varying = dict(self.capture.moved), []
        edge_counts = {}
        for edge in self.journal.edges:
            edge_counts[id(edge.child)] = edge_counts.get(id(edge.child), 0) + 1
        for edge in self.journal.edges:
            now, before = edge.read(), edge.child
            reason = f"the call changed {edge.path} from {short(before)} to {short(now)}"
            if edge in numbers:
                self.moves.append((edge, numbers[edge]))
                if type(before) is int and edge not in self.capture.proxies and not edge.blind:
                    varying.append((edge.path, reason))      # it was taken for a size
            elif edge.blind:
                if not edge.writable() or type(now) not in PLAIN_TYPES and not isinstance(now, Tensor):
                    raise NotReplayable(reason, again=True)
                self.moves.append((edge, now))
            elif now is before or type(now) in PLAIN_TYPES and same_value(now, before):
                if edge in self.capture.follower.put and type(now) in PLAIN_TYPES and edge.writable():
                    self.moves.append((edge, now))           # a replay may find another number there
            elif isinstance(now, (Tensor, type(None))) and isinstance(before, (Tensor, type(None))) \
                    and edge.writable() and (edge.kind == "grad" or before is None or edge_counts[id(before)] == 1):
                edge.loose = True                            # another tensor at every call: see Note [Loose]
                self.moves.append((edge, now))
            elif type(now) is type(before) is int:
                varying.append((edge.path, reason))
            else:
                raise NotReplayable(reason, again=True)
        if varying:
            raise NotReplayable(varying[0][1], again=True, varying=[path for path, _ in varying])

    def _tensors(self):
        for tensor, path, storage, before, came_from in self.capture.tensors_before:
            if tensor._storage is not storage:
                raise NotReplayable(f"the call gave {path} other memory")
            if tensor_state(tensor) != before:
                raise NotReplayable(f"the call changed {path}: its shape, its hooks, or whether it requires grad",
                                    again=True)
            if any(now is not then for now, then in zip(history(tensor), came_from, strict=True)):
                raise NotReplayable(f"the call writes to {path}, which was computed from something that requires "
                                    "grad: its new history would have to be made again; write to a clone(), or outside")

    def _stores(self):
        entry = {storage: value for value, storage in self.trace.read_from.items()}
        for storage, path in self.trace.storages.items():
            rose = storage.version - self.capture.versions[storage]
            hidden = storage.hidden - self.trace.hidden[storage]
            if hidden and hidden != rose:
                raise NotReplayable(f"the call writes to {path} as it is and through .data")
            if hidden:
                since = self.capture.versions[storage]
                self.hidden[storage] = tuple(cells for writes in storage.hidden_writes if writes.end > since
                                             for cells in writes.cells)
            if rose or storage.value is not entry[storage]:
                self.stored.append((storage, self._source(storage.value, path), rose, path))

    def _source(self, value, path):
        """Where contents that stay come from."""
        found = self.origin(value, path)
        if found[0] == "made":
            self.needs[found[1]] = None
        return found

    def origin(self, value, path):
        """("made", slot), ("entry", storage), ("draw", number), ("constant", Value) or ("incoming", which gradient)."""
        trace, done = self.trace, self.capture.differentiated
        if value.trace is trace:
            return "made", value.slot
        if done is not None and value in done.incoming:
            return "incoming", done.incoming[value]
        if value in trace.read_from:
            return "entry", trace.read_from[value]
        if value in self.draws:
            return "draw", self.draws[value]
        if value in trace.born:
            return "constant", value
        raise NotReplayable(f"the contents of {path} came from somewhere that cannot be seen")

    # --- what it gave ------------------------------------------------------------------------------------------------

    def _result(self, tensor, path):
        """See that a replay can make this tensor, if it was not there before."""
        if id(tensor) in self.journal.tensors or id(tensor) in self.new_tensors:
            return
        if has_override(type(tensor)) or vars(tensor):
            raise NotReplayable(f"{path} is a {type(tensor).__name__} with something of its own: only plain tensors "
                                "are made again")
        if tensor.grad_fn is not None and is_live(tensor) and self.capture.differentiated.reason is not None:
            raise NotReplayable(f"{path} requires grad, and {self.capture.differentiated.reason}")
        if tensor._data_version is not None:
            raise NotReplayable(f"{path} is the .data of a tensor, which counts its own writes")
        if tensor._grad is not None or tensor._retains is not None or tensor._leaf_hooks or tensor._post_hooks:
            raise NotReplayable(f"{path} is a new tensor with a gradient or a hook")
        storage = tensor._storage
        if storage.value is None:
            raise NotReplayable(f"{path} is on the meta device")
        if storage not in self.trace.storages and storage not in self.new_storages:
            if storage.exported:
                raise NotReplayable(f"{path} shares its memory with the outside")
            self.new_storages[storage] = self._source(storage.value, path)
        self.new_tensors[id(tensor)] = tensor

    def _structure(self, out):
        """`out` as a tree of (tag, thing, parts); what the result holds twice is one node."""
        if isinstance(out, Tensor):
            self._result(out, "the result")
            return "tensor", out, ()
        if type(out) in TRACED:
            return "number", out._name, ()
        if id(out) in self.journal.seen:
            return "known", out, ()
        if type(out) in PLAIN_TYPES or \
                isinstance(out, (*EQUALITY_TYPES, dtypes.dtype, type, types.FunctionType, types.ModuleType)):
            return "known", out, ()
        cls, node = type(out), self.nodes.get(id(out), MISSING)
        if node is None:
            raise NotReplayable(f"the result is a {cls.__name__} that holds itself")
        if node is not MISSING:
            return node
        self.nodes[id(out)] = None
        if cls in (list, tuple, Size) or cls is deque and out.maxlen is None \
                or isinstance(out, tuple) and hasattr(out, "_fields") and not getattr(out, "__dict__", None):
            node = self.nodes[id(out)] = "sequence", cls, [self._structure(part) for part in out]
            return node
        if cls is dict or is_record(cls):
            parts = out if cls is dict else vars(out)
            if all(type(key) in PLAIN_TYPES for key in parts):
                parts = [(key, self._structure(part)) for key, part in parts.items()]
                node = self.nodes[id(out)] = "mapping", cls, parts
                return node
        raise NotReplayable(f"the result holds a {cls.__name__}; what can be made again are tensors, numbers, "
                            "strings, and lists, tuples, dictionaries and dataclasses of them")

    # --- what goes in ------------------------------------------------------------------------------------------------

    def _inputs(self):
        """The slots of what comes in: read from storages, random numbers, constants; and which are overwritten."""
        self.read, self.drawn, self.fixed = [], [], []
        for value, slot in self.trace.slots.items():
            self._input(slot, *self.origin(value, "an input"))
        over = {storage for storage, *_ in self.stored}
        sources = [source for _, source, *_ in self.stored] + list(self.new_storages.values())
        sources += [source for _, source in self.gradient.takes] if self.gradient is not None else []
        passed = {what for origin, what in sources if origin == "entry"}
        kept = {what for origin, what in sources if origin == "draw"}
        self.free = (*[slot for slot, storage in self.read if storage in over and storage not in passed],
                     *[slot for slot, number in self.drawn if number not in kept])

    def _input(self, slot, origin, what):
        if origin == "incoming":
            return
        (self.read if origin == "entry" else self.drawn if origin == "draw" else self.fixed).append((slot, what))

    def _checks(self):
        """The checks that have to be repeated, with slots in the place of Values: before random numbers, and after."""
        self.early, self.late = [], []
        for op, given in self.trace.checks:
            came = set()
            for seen in noted_in(given):
                new = self.trace.number(seen)
                if new is not None:                          # which only a check has looked at
                    self._input(seen.slot, *self.origin(new, "an input"))
                came |= self._origins(seen.slot)
            if came:
                (self.late if "draw" in came else self.early).append((op, given))
        self.trace.checks = []

    def _origins(self, slot):
        """Which of "entry" and "draw" are among the sources that a slot is computed from."""
        needed, live = needed_for([slot], self.trace.code)
        for index in needed:
            instruction = self.trace.code[index]
            op = instruction.entry.op
            if op.effect:
                raise NotReplayable(f"a check of data looks at what {op.__name__}() gave, and that has an effect")
            if any((index, n) in self.trace.numbers for n in range(len(instruction.params))):
                raise NotReplayable(f"{op.__name__} makes positions from a number that may change")
        sources = (("entry", self.read), ("draw", self.drawn))
        return {origin for origin, found in sources if any(slot in live for slot, _ in found)}

    def _refuse_other_holders(self):
        """Refuse if a result is held that is neither returned nor found where the function keeps things."""
        trace, done = self.trace, self.capture.differentiated
        if done is not None:
            done.grads = ()
            del trace.code[done.split:]
        code, values = trace.code, trace.values
        fine = self.needs.keys() | (done.held(trace) if done is not None else set())
        for attempt in range(2):
            holders = counts(values)
            others = [(one.entry.op, slot) for one in code for slot in one.results()
                      if slot not in fine and holders[slot] > RESULT]
            if not others:
                return
            if not attempt:
                gc.collect()                                 # it may be only an unreachable cycle
        raise NotReplayable(f"a result of {others[0][0].__name__} is kept somewhere that cannot be seen from the "
                            "function")

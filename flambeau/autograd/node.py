"""Autograd nodes: what was done, what was kept for the gradient, and where the gradient goes next.

A kept tensor is held by its storage and version, not by its contents, so that an in-place write costs no copy and
is noticed at backward. A node's own result is kept without its node, since the node would otherwise hold itself.

Note [What is kept]: nearly always an input is kept as the plain tuple (tensor, storage, version, node), and a result
as (storage, version, spec, offset): tuples cost a third of an object to make and to read. What needs more than that
(hooks that pack it, memory that the outside can write, a subclass, forward mode) is kept as a Kept.
"""
import zlib

from ..base.entry import OUR_OPERATIONS
from ..base.errors import here, line_of, name_of
from ..base.op import door, known
from .base_node import Node, refresh
from .edges import accumulator
from .modes import modes
from .slots import RecipeBase


class Kept:
    """A tensor kept for backward: its storage and version, and where its gradient goes."""

    node = None               # the node it came from
    nr = 0
    leaf = None               # the tensor itself, if it is a leaf that requires grad
    own = False               # whether it is the result of the node that keeps it
    check = None              # a checksum of memory that the outside can write
    packed = None             # what a saved-tensors hook made of it, and the hook that unpacks
    tangent = None            # what it carries in forward mode

    @classmethod
    def of_input(cls, tensor, storage, version, node):
        """The full form of an input's plain tuple."""
        kept = cls()
        kept.storage, kept.version, kept.spec, kept.offset = storage, version, tensor._spec, tensor._offset
        if node is not None:
            kept.node, kept.nr = node, tensor._nr
        else:
            kept.leaf = tensor
        return kept

    @classmethod
    def of_result(cls, storage, version, spec, offset):
        """The full form of a result's plain tuple."""
        kept = cls()
        kept.storage, kept.version, kept.spec, kept.offset, kept.own = storage, version, spec, offset, True
        return kept

    def unpack(self, owner):
        """The tensor as it was kept; refuses if its memory has been written since."""
        if self.packed is not None:
            return unpack_hooked(self, owner)
        storage = self.storage
        if storage.version != self.version and not (
                storage.hidden and storage.only_hidden(self.version, (self.spec, self.offset))):
            raise written_error(self, owner)
        if self.check is not None and checksum(storage) != self.check:
            raise outside_error(self, owner)
        if storage.fingerprint is not None and storage.fingerprint[0] == self.version and self.check is None \
                and checksum(storage) != storage.fingerprint[1]:
            raise outside_error(self, owner)
        leaf = self.leaf
        if leaf is not None and leaf.__class__ is door.tensor:
            return leaf
        if leaf is not None:                             # a subclass: gradients are computed with plain tensors
            storage, self.spec, self.offset = leaf._storage, leaf._spec, leaf._offset       # `.data` may have been set
        tensor = door.wrap(storage, self.spec, self.offset)
        if self.tangent is not None:
            tensor._tangent = self.tangent
        if leaf is not None:
            tensor._node, tensor._nr = accumulator(leaf), 0
        elif self.own:
            if owner.differentiable_out(self.nr):
                tensor._node, tensor._nr = owner, self.nr
        elif self.node is not None:
            tensor._node, tensor._nr = self.node, self.nr
        return tensor


_new = object.__new__


def keep(tensor, own=False, nr=0):
    """Keep `tensor` for backward; `own` says that it is the node's own result number `nr`."""
    kept = _new(Kept)
    storage = tensor._storage
    kept.storage = storage
    kept.spec = tensor._spec
    kept.offset = tensor._offset
    kept.version = storage.saved_at = storage.version
    if own:
        kept.own, kept.nr = True, nr
    else:
        if tensor._base is not None and tensor._seen != storage.version:
            refresh(tensor)
        node = tensor._node
        if node is not None:
            kept.node, kept.nr = node, tensor._nr
        elif tensor._requires_grad:
            kept.leaf = tensor
        if modes.level >= 0:
            kept.tangent = (modes.level, door.tangent_of(tensor))
    if modes.saved_hooks:
        return pack_hooked(kept, tensor)
    if storage.exported and storage.shared is None and storage.has_outside_arrays():
        kept.check = checksum(storage)
    return kept


def pack_hooked(kept, tensor):
    pack, unpack = modes.saved_hooks[-1]
    plain = tensor if kept.leaf is not None else tensor.detach()
    before = plain._storage.version
    kept.packed = (pack(plain), unpack)
    if plain._storage.version != before:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to "
                           "pack hook can not be modified by in-place operations as this can lead to unexpected "
                           "side-effects. Please open an issue if you need to perform in-place operations on the input "
                           "to a pack hook.")
    kept.storage = None
    return kept


def unpack_hooked(kept, owner):
    packed, unpack = kept.packed
    tensor = unpack(packed)
    if not isinstance(tensor, door.tensor):
        raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                        f"{type(tensor)}")
    if kept.leaf is tensor:
        return tensor
    seen = door.wrap(tensor._storage, tensor._spec, tensor._offset)
    if kept.own:
        if owner.differentiable_out(kept.nr):
            seen._node, seen._nr = owner, kept.nr
    elif kept.node is not None:
        seen._node, seen._nr = kept.node, kept.nr
    elif kept.leaf is not None:
        seen._node, seen._nr = accumulator(kept.leaf), 0
    return seen


def checksum(storage):
    """A number that changes when the storage's bytes do."""
    value = storage.value
    if value is None:
        return None
    return zlib.crc32((value if value.trace is None else value.ready()).bytes_on_host())


def _type_words(spec):
    return f"[torch.{spec.dtype.cname}Tensor {list(spec.shape)}]"


def written_error(kept, owner):
    """PyTorch's in-place error, and after it who wrote, and for what the tensor was kept."""
    storage, spec = kept.storage, kept.spec
    source = owner if kept.own else kept.node
    origin = f", which is output {kept.nr} of {source.name()}," if source is not None else ""
    unseen = storage.hidden and storage.only_hidden(kept.version)
    message = ("one of the variables needed for gradient computation has been modified by an inplace operation: "
               f"{_type_words(spec)}{origin} " + ("was written through .data, which raises no version." if unseen else
               f"is at version {storage.version}; expected version {kept.version} instead."))
    if storage.writer is not None:
        site, what = storage.writer
        message += (f"\n  {_name(kept)} was written last by {what} at {line_of(site)}, and is needed by "
                    f"{owner.name()}, made at {line_of(owner.site)}.\n  At {line_of(site)}, use the out-of-place form "
                    "or write to a clone(); or run backward before.")
    return RuntimeError(message)


def _name(kept):
    """What the user calls the tensor that was kept, or the memory it looks at."""
    tensor, storage, looks = door.tensor, kept.storage, (kept.spec, kept.offset)
    found = lambda t: isinstance(t, tensor) and t._storage is storage and (t._spec, t._offset) == looks
    return name_of(None, None, found) \
        or name_of(None, None, lambda t: isinstance(t, tensor) and t._storage is storage) or "It"


def outside_error(kept, owner):
    """Like the in-place error, for a write that came from outside (NumPy, DLPack) and raised no version."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{_type_words(kept.spec)} shares its memory with a NumPy array (or another library), and its bytes changed "
        f"between the forward pass and this backward, without a version to show it.\n  {_name(kept)} is needed by "
        f"{owner.name()}, made at {line_of(owner.site)}.\n  Write to a copy of the array, or clone() the tensor before "
        "the forward pass.")


class BackwardRecipe(RecipeBase):
    """What the backward of one kind of call needs, found once: inputs that get a gradient, what is kept, the rules.

    Only inputs that want a gradient count in a node: its edges, its gradients and `input_specs` stand in the
    order of `inputs` (their numbers). `asked` holds (position, how) of each argument that is kept, in the order of
    `kept`; where nothing is kept but one tensor, `only_kept` is its position, and `kept` is that tensor. `steps` holds
    (place of the gradient, rule, wanted arguments); a wanted argument is (NUMBER, TENSOR or LIST, place in `kept`),
    (OUT, None), (NTH, result) or (SPEC, the spec itself). A rule for a list of tensors stands with the tuple of its
    places. `fetched` are all that rules want, once, but for specs.
    """

    __slots__ = ()

    def __init__(self, op, specs, template, wanted):
        self.op, self.template = op, template
        self.name = next((name for argument, name in op.number_nodes.items()
                          if template[op.arg_names.index(argument)] is None), op.node_name)
        self.live = live = tuple([bool(wanted >> i & 1) and k.dtype.category >= 2 for i, k in enumerate(specs)])
        self.inputs = tuple([i for i, use in enumerate(live) if use])
        self.input_specs = tuple([specs[i] for i in self.inputs])
        positions = [at for at, slot in enumerate(template)
                     if (slot.__class__ is int and live[slot])
                     or (slot.__class__ is tuple and any(s is not None and live[s] for s in slot))]
        if op.joint is not None:
            rules = [(None, *op.joint)]
        else:
            for at in positions:
                if at not in op.rules:
                    raise NotImplementedError(f"{op.__name__} has no gradient for its argument '{op.arg_names[at]}'; "
                                              "detach() that argument first")
            rules = [(template[at], *op.rules[at]) for at in positions]
        names = {name for _, _, names in rules for name in names}
        which = [at for at, name in enumerate(op.arg_names) if name in names]
        self.asked = tuple([(at, how_kept(template[at])) for at in which])
        nths = frozenset(int(n[3:]) for n in names if n.startswith("out") and n[3:].isdigit())
        self.keep_out = ALL_RESULTS if "out" in names else nths
        self.saves = bool(self.keep_out) or any(how != NUMBER for _, how in self.asked)
        self.only_kept = self.asked[0][0] if [how for _, how in self.asked] == [TENSOR] and not self.keep_out else None
        self.steps = tuple([(self.place(slot), rule, tuple([self.argument(name, specs) for name in names]))
                            for slot, rule, names in rules])
        self.single_rule = None           # (rule, how, what) where one rule with one argument at most is all there is
        if op.joint is None and len(self.steps) == 1 and self.steps[0][0] == 0 and len(self.steps[0][2]) < 2:
            _, rule, wanted = self.steps[0]
            self.single_rule = (rule, *(wanted[0] if wanted else (None, None)))
        self.fetched = tuple(dict.fromkeys(one for _, _, wanted in self.steps for one in wanted if one[0] != SPEC))
        # whether the rules may be followed: see Note [Followed functions] in tensor/follow.py. A number that may be
        # another one every time would need a tape of its own every time.
        self.has_float_result = False                         # whether there is one alone, and it is known to be such
        self.follows = OUR_OPERATIONS in type(op).__module__ and not any(
            how == LIST or how == NUMBER and known[op].typed[self.asked[what][0]] for how, what in self.fetched)

    def place(self, slot):
        """Where the gradient of the input (or the inputs) `slot` stands; None where none is wanted."""
        if slot.__class__ is tuple:
            return tuple([self.place(s) for s in slot])
        return self.inputs.index(slot) if slot is not None and self.live[slot] else None

    def argument(self, name, specs):
        """How a rule's parameter is fetched."""
        names = self.op.arg_names
        if name in names:
            at = names.index(name)
            how = how_kept(self.template[at])
            return how, self.asked.index((at, how)) if self.only_kept is None else None
        if name == "out":
            return OUT, None
        if name.startswith("out") and name[3:].isdigit():
            return NTH, int(name[3:])
        slot = self.template[names.index(name.removesuffix("_spec"))]
        return SPEC, (specs[slot] if slot.__class__ is int else None if slot is None else
                      tuple([None if s is None else specs[s] for s in slot]))


NUMBER, TENSOR, LIST, OUT, NTH, SPEC = range(6)
ALL_RESULTS = range(1 << 20)


def how_kept(slot):
    """How an argument is kept, from its place in an entry's template."""
    return TENSOR if slot.__class__ is int else LIST if slot.__class__ is tuple else NUMBER


class OpNode(Node):
    """The node of a declared operation. `kept` holds what its recipe asked for, the result (or results) last.

    Its methods `fetch` and `backward` are walk.py's.
    """

    # recipe; edges; kept; outs: spec of each result; site; seq. Set by `make_node` in tensor/history.py, at every call.
    op = property(lambda self: self.recipe.op)
    input_specs = property(lambda self: self.recipe.input_specs)
    __init__ = object.__init__             # made often, and then filled in

    def name(self):
        return self.recipe.name

    def shown(self):
        """The node as the user sees it, of the class that PyTorch's has.

        All are of one class as long as they are not looked at, since the engine reads the attributes of one class
        faster.
        """
        if self.__class__ is OpNode:
            self.__class__ = node_type(self.recipe.name.rpartition("::")[2])
        return self

    def __repr__(self):
        return f"<{self.recipe.name.rpartition('::')[2]} object at {hex(id(self))}>"

    @property
    def next_functions(self):
        """(node, output number) of each input; a number in a tensor's place counts, with (None, 0), as in PyTorch."""
        recipe, op, out = self.recipe, self.recipe.op, []
        for at, slot in enumerate(recipe.template):
            if slot is not None:
                if op.joint is not None or at in op.rules:
                    for s in slot if slot.__class__ is tuple else (slot,):
                        if s is not None:
                            edge = self.edges[recipe.inputs.index(s)] if recipe.live[s] else None
                            out.append((None, 0) if edge is None else (edge[0].shown(), edge[1]))
            elif op.pointwise and at in op.rules and op.arg_names[at] not in op.number_nodes:
                out.append((None, 0))
        return tuple(out)

    def differentiable_out(self, nr):
        return self.outs[nr].dtype.category >= 2 and nr not in self.op.nondiff

    def release(self, site):
        if self.recipe.saves:
            self.kept = None
            self.released = site

    def result_moved(self, storage, tensor):
        """After an in-place form: the result that was kept from `storage` now lives in `tensor`, and ages with it."""
        if not self.recipe.keep_out:
            return
        here, version, last = tensor._storage, tensor._storage.version, self.kept[-1]
        if last.__class__ is tuple and last[0] is storage:                # see Note [What is kept]
            here.saved_at = version
            self.kept[-1] = (here, version, tensor._spec, tensor._offset)
        for kept in flat((last,)):
            if kept.__class__ is Kept and kept.packed is None and kept.storage is storage:
                kept.storage, kept.spec, kept.offset = here, tensor._spec, tensor._offset
                kept.version = here.saved_at = version

    def result(self, nr=None):
        """The node's own result as it was kept; number `nr` of several, or all of them."""
        kept = self.kept[-1]
        if self.n_outputs > 1:
            return kept[nr].unpack(self) if nr is not None else tuple([h and h.unpack(self) for h in kept])
        return (kept if kept.__class__ is Kept else Kept.of_result(*kept)).unpack(self)


def kept_places(node, kept, written=False):
    """(position of the argument, or None for the result; tensor if it is there; storage, spec, offset) of the tensors
    in `kept`, which a node keeps or has kept, that are as they were; with `written`, of those written to since too."""
    recipe = node.recipe
    pairs = [(recipe.only_kept, kept)] if recipe.only_kept is not None else \
        [(at, one) for (at, how), one in zip(recipe.asked, kept, strict=False) if how == TENSOR]
    if recipe.keep_out and node.n_outputs == 1:
        pairs.append((None, kept[-1]))
    for at, one in pairs:
        if one is None:                                   # not kept; see watch/training.py
            continue
        if one.__class__ is Kept:
            if one.packed is None and (written or one.storage.version == one.version):
                yield at, None, one.storage, one.spec, one.offset
        elif at is None:
            storage, version, spec, offset = one
            if written or storage.version == version:
                yield at, None, storage, spec, offset
        elif written or one[1].version == one[2]:
            yield at, one[0], one[1], one[0]._spec, one[0]._offset


_node_types: dict = {}


def node_type(name):
    """The class of nodes called `name`, so that `type(y.grad_fn).__name__` says what PyTorch's does."""
    made = _node_types.get(name)
    if made is None:
        made = _node_types.setdefault(name, type(name, (OpNode,), {}))
    return made


def flat(kept):
    """The entries of `kept`, tuples opened."""
    for k in kept:
        if k.__class__ is tuple:
            yield from k
        else:
            yield k


def second_error(node):
    """PyTorch's second-backward error, and after it the line of the first, and what is most likely meant.

    Where both are one line, it is a loop, and the graph of an earlier step hangs on something that was carried over.
    """
    again = line_of(node.released) == line_of(here())
    if again:
        way_out = "Something is carried from one step to the next, as a hidden state or a sum of losses: detach() it " \
                  "before it is used again (of losses, add up loss.item()). Or run the forward pass anew in every step."
    else:
        way_out = "Run the forward pass again, or add the losses up and run one backward. A second one over the same " \
                  "graph needs backward(retain_graph=True) there."
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        f"saved tensors after calling backward.\n  The first backward was at {line_of(node.released)}"
        f"{' too, in an earlier step' if again else ''}; {node.name()} was made at {line_of(node.site)}.\n  {way_out}")

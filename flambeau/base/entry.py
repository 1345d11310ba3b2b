"""What is known about a call before it runs: the Facts of its operation, and its Entry; and a call that is noted.

A part of the compiled core: see Note [One source, two speeds] in core.py.
"""


OUR_OPERATIONS = f"{__name__.partition('.')[0]}.ops."     # where those are declared that are known to go by specs

# The ways in which a call is recorded: `way_of` in tensor/infer.py says which is a call's.
ONE_RESULT = 0                # an instruction with one result and nothing to verify: the way of nearly all calls
SEVERAL_RESULTS = 1           # an instruction with several
CHECKED = 2                   # either of them, once its data is verified
ONE_VIEW = 3                  # another look at a storage: no instruction
ANY_VIEW = 4                  # several, or one of another dtype or without a gradient
LONG_WAY = 5                  # what is run at the call, told to `watch`, or has no device
RULED = 6                     # a composite with rules of its own: calls of others, and one node for all of them
DETACHED = 7                  # no operation: the same memory without its history


class Entry:
    """All that is known about one call before it runs; its operation has it by specs and parameters."""

    __slots__ = ("op", "outs", "many", "casts", "template", "simple", "param_at", "pick", "wrap", "input_specs",
                 "zeros", "deltas", "nbytes", "weight", "device", "compiles", "recipes", "way", "compute",
                 "fits", "rounded", "larger", "singles", "traces", "latest", "claim")

    def __init__(self):
        self.singles = None   # how it runs by itself: see trace/running/single.py
        self.claim = None     # how its operation's `bounds` are asked: see trace/bounds.py
        self.traces = 0       # in how many traces without a plan it has come: see segments.py in trace
        self.latest = -1      # the number of the last of them


def _that_detaches():
    entry = Entry()
    entry.op, entry.way, entry.many = None, DETACHED, False
    return entry


DETACHES = _that_detaches()   # stands on a tape for the same memory without history, which is no operation


class NotedCall:
    """A call that came by while a tape was made (`trace.tape`), with all its arguments, and what it gave.

    `moved` is how far behind the place that its entry says a view starts; -1 of what is no view. `result` is a tensor,
    or a list or tuple of them. Of a composite with rules, `inner` has the calls that it came to and what they gave.
    """

    __slots__ = ("entry", "args", "inputs", "params", "moved", "result", "inner")

    def __init__(self, entry, args, inputs, params, moved, result, inner=None):
        self.entry, self.args, self.inputs, self.params = entry, args, inputs, params
        self.moved, self.result, self.inner = moved, result, inner


class Facts:
    """What every call asks of an operation, in slots, which are quicker to read than the declaration's headings.

    Note [What a call gives]: an operation knows it of calls that came by, on three levels. `entries` has all there is
    to know, by the specs and parameters of all arguments, bound. The other two are short ways to an Entry: `given` goes
    by any arguments as the caller gave them, and says how they are bound; `operands` goes by one or two alone, with no
    key to make. They lead past modes and overrides as well, and are emptied where these begin (`forget_ways` in
    tensor/infer.py).
    """

    __slots__ = ("composite", "pointwise", "typed", "typed_names", "lists", "of", "ruled", "follows", "most_followed",
                 "only_on_cpu", "several", "defaults", "in_place", "no_overlap", "blind", "overlap_ok", "pickers",
                 "fits_by_name", "entries", "given", "operands")

    def __init__(self, op):
        self.composite, self.pointwise, self.lists = op.composite, op.pointwise, op.lists
        # whether a number counts by its type alone, at each place (and at places that are too many) and by name
        self.typed = op.scalar_at + (False,) * 64 if not op.pointwise else (True,) * (len(op.defaults) + 64)
        self.typed_names = frozenset(name for name, typed in zip(op.arg_names, self.typed) if typed)
        self.of = getattr(op, "of", None)
        self.ruled = op.differentiable
        self.follows = bool(op.by_specs) and OUR_OPERATIONS in op.__module__
        self.only_on_cpu = op.by_specs is not True      # elsewhere it goes by which GPU is the current one
        # with old orders of its arguments, which are longer, these have to be found first
        self.most_followed = op.n_positional if op.deprecated else 1 << 30
        self.several = op.returns is not None
        self.defaults = op.defaults
        self.in_place = op.__name__ + "_"
        self.no_overlap, self.blind, self.overlap_ok = op.no_overlap, op.blind, op.overlap_ok
        self.fits_by_name = all(name in op.kwonly for name in op.must_fit)
        self.pickers = {}             # (number of positional arguments, names of the others) → what orders them
        self.entries = {}             # the key of all arguments → Entry: Note [Keys] in tensor/find.py
        self.given = {}               # the key of arguments as given → (Entry, what binds such arguments)
        self.operands = {}            # what the first is → what the second is → KnownCall: tensor/known_calls.py

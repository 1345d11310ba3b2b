"""What is known about a call before it runs: the Facts of its operation, and its Entry.

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


class Facts:
    """What every call asks of an operation, in slots, which are quicker to read than the declaration's headings.

    Note [What a call gives]: an operation knows it of calls that came by, on three levels. `entries` has all there is
    to know, by the specs and parameters of all arguments, bound. The other two are short ways to an Entry: `given` goes
    by any arguments as the caller gave them, and says how they are bound; `operands` goes by one or two alone, with no
    key to make. They lead past modes and overrides as well, and are emptied where these begin (`forget_ways` in
    tensor/infer.py).
    """

    __slots__ = ("composite", "pointwise", "typed", "typed_names", "lists", "of", "ruled", "follows", "several",
                 "defaults", "in_place", "no_overlap", "blind", "overlap_ok", "pickers", "fits_by_name",
                 "entries", "given", "operands")

    def __init__(self, op):
        self.composite, self.pointwise, self.lists = op.composite, op.pointwise, op.lists
        # whether a number counts by its type alone, at each place (and at places that are too many) and by name
        self.typed = op.scalar_at + (False,) * 64 if not op.pointwise else (True,) * (len(op.defaults) + 64)
        self.typed_names = frozenset(name for name, typed in zip(op.arg_names, self.typed) if typed)
        self.of = getattr(op, "of", None)
        self.ruled = op.differentiable
        # with rules it is a node of its own, and with old orders of its arguments these have to be found first
        self.follows = op.by_specs is True and not op.differentiable and not op.deprecated \
            and OUR_OPERATIONS in op.__module__
        self.several = op.returns is not None
        self.defaults = op.defaults
        self.in_place = op.__name__ + "_"
        self.no_overlap, self.blind, self.overlap_ok = op.no_overlap, op.blind, op.overlap_ok
        self.fits_by_name = all(name in op.kwonly for name in op.must_fit)
        self.pickers = {}             # (number of positional arguments, names of the others) → what orders them
        self.entries = {}             # the key of all arguments → Entry: Note [Keys] in tensor/find.py
        self.given = {}               # the key of arguments as given → (Entry, what binds such arguments)
        self.operands = {}            # what the first is → what the second is → KnownCall: tensor/known_calls.py

"""The form of an operation: what a declaration in `ops/` may say, and how its result is inferred.

A declaration is written as a class, and what its name then stands for is the operation itself: one object, a function
to `help`, `inspect` and `callable`. Calling it goes through the one door that the tensor layer opens
(`door.call`). The functions in a declaration are plain, without `self`; a `@classmethod` receives the operation. The
headings:

    names       further public names: "nn.functional.relu", "absolute"; a name starting with "Tensor." is a method only
    forms       which forms exist: "function", "method", "inplace" (name_), "out" (out=), separated by blanks
    meta(…)     the result's Spec (a tuple for several results), from the Specs of the tensors and the parameters
    ref(xp, …)  the meaning in NumPy or CuPy; its parameters are the operation's signature
    verify(…)   a check on the data itself, run at the call; its parameters name the tensors it looks at
    by_bounds   names of tensors of whole numbers of which `verify` asks no more than `outside` and `among` do
                (base/bounds.py) to let them pass. Where their bounds follow from how they were computed, it is given
                these in place of data, and the data only where it refuses them
    holds(…)    whether `verify`, which has the same parameters, lets the data pass, in operations on tensors: a tensor
                of no dimensions, or None where only `verify` can say. A compiled function asks that in its own run,
                where a check looks at what it computes
    bounds(…)   what a result of whole numbers can be, as a pair (least, largest), or a list of such for several
                results; None says nothing. Parameters name arguments: a tensor is its own pair, or None if it has
                floats, `<arg>_spec` is its Spec, and everything else is as it was given, but for the numbers among the
                operands of a pointwise operation, which are pairs. What is claimed is not looked at again before it is
                read by it, so it has to hold for any data, NaN included
    d_<arg>(g, …)   the gradient for one argument; parameters name what is kept: any argument, `out`, or `<arg>_spec`
    grads(g, needs, …)   instead of several d_: a tuple with one gradient (or None) per tensor argument
    direct(la, …)   the same by the device's library of linear algebra, `Backend.solvers`, with `ref`'s parameters; None
                leaves the case to `ref`, which also refuses in words
    exact       True where elements are only moved or compared: half types are not widened to float32 on the way
    overwrites  True where `ref` writes into its first array and gives it back (writing twice must be as good as once):
                it is given a copy where the contents are still needed
    eager       True where the result's shape depends on the data, or the reference may refuse on its data
    effect      True where running it does something besides computing its results (a collective, a callback, a print):
                it runs once for each call of it, in the order of the calls, whether or not its results are read; it
                gives at least one, and has no body. It runs when the trace does, with `eager` at the call. See Note
                [Effects] in trace/running/effects.py
    scalars     names of number parameters that stay out of the plan's key
    node        the name of its autograd node where it is not <Name>Backward0
    returns     field names of the result tuple, after the tuple's own name: "max values indices"
    body(k, …)  what the native executor computes: `ref`'s parameters with `k` for `xp`, and last in the declaration.
                Tensors and runtime numbers are expressions there, over all positions of a shape; `k` has the words to
                make others of them (trace/planning/lower.py; docs/native.md lists them). The result is such an
                expression, of the result's shape; NotImplemented leaves the case to `ref`, and so does having no body

A derivative receives tensors and computes with their methods, so nothing here imports the layers above.
"""
from operator import itemgetter
from types import FunctionType
from typing import Any

import numpy as np

from . import dtypes, function, shapes
from .entry import Facts
from .errors import need, warn
from .locks import new_lock
from .spec import CPU, Spec, spec


class _Door:
    """What lower layers call of higher ones, which hang it in here when they are imported.

    Note [The door]: imports point downwards, and some calls have to go up: `op(x)` records, a derivative is written in
    operations, autograd makes tensors. Such a call goes through a slot here. It is filled once, by the module that is
    named beside it, and is for those alone who cannot import that module: tests/test_layers.py holds both.
    """

    call: Any = None          # tensor/forms        call(op, args, kwargs): an operation, as the user wrote it
    inplace: Any = None       # tensor/write        inplace(op, args, kwargs): its in-place form
    into: Any = None          # tensor/write        into(op, args, kwargs, out): its out= form
    page: Any = None          # tensor/forms        page(op): what `help` shows of it
    operations: Any = None    # tensor/forms        the declared ones by their names: those that autograd computes with

    tensor: Any = None        # tensor/tensor       the Tensor class
    wrap: Any = None          # tensor/tensor       wrap(storage, spec, offset): a tensor that looks at a storage
    remember: Any = None      # tensor/call         remember(moved, source): what a tensor elsewhere holds, for checks
    from_array: Any = None    # tensor/create       from_array(array): a tensor that takes over a NumPy array
    operand: Any = None       # tensor/ufuncs       operand(array): a NumPy array as an operand of an operator

    before_write: Any = None  # tensor/write        before_write(tensor, what): refuse a write that must not be
    refuse_view: Any = None   # tensor/write        refuse_view(tensor, written): refuse one that a view cannot follow
    gradients: Any = None     # tensor/follow       gradients(node, grads): by its rules, or as these were taped
    hide_write: Any = None    # tensor/overwrite    hide_write(tensor): the write just counted came through `.data`
    resize: Any = None        # tensor/attributes   resize(tensor, size, strides): the storage gets the memory for them
    look_again: Any = None    # autograd/slices     look_again(base, view): the view anew, with its history
    batching: Any = None      # func/batched_grad   what runs over batched tensors; see `Batching` in func/batching.py
    tangent_of: Any = None    # autograd/forward_ad tangent_of(tensor): what it carries in forward mode
    noticed: Any = None       # __init__            noticed(what, ...): tell watch of it; see watch/noticed.py
    records: Any = None       # autograd/modes      records(): whether calls record autograd nodes now


door = function.door = _Door()
NUMBER_CLASSES = (bool, int, float, complex)
INSIDE = "inside"             # what a composite's `by_specs` may be: see there
REQUIRED = object()
COUNT_PARAMETERS = frozenset("k n diagonal offset size step chunks minlength".split())          # whole numbers
DIM_PARAMETERS = frozenset("dim dim0 dim1 dim2 start_dim end_dim dimension".split())
NUMPY_PARAMETERS = {"axis": "dim", "axes": "dim", "keepdims": "keepdim", "self": "input", "x": "input", "a": "input",
                    "A": "input", "x1": "input", "x2": "other"}


FACTOR_PARAMETERS = ("alpha", "beta", "value")         # the numbers that PyTorch once took before the tensors


known: dict = {}              # operation → its Facts, once it was called
_preparing = new_lock()       # see Note [First use] in once.py


class Page:
    """The `__doc__` of an operation: its docstring, with what the tensor layer knows to add (`door.page`)."""

    def __get__(self, op, cls=None):
        return None if op is None else door.page(op) if door.page else op.docstring

    def __set__(self, op, text):
        op.docstring = text


class Arguments:
    """The `__signature__` of an operation, for `inspect.signature` and `help`; read off the declaration when asked.

    Asked of the declaration's class, it is that of the method: the tensor comes first, and there is no `out=`.
    """

    def __get__(self, op, cls):
        from inspect import Parameter, signature
        method = op is None
        op = cls.operation if method else op
        meaning, skipped = op.meaning()
        found = signature(meaning)
        given = [p.replace(annotation=Parameter.empty) for p in found.parameters.values()][skipped:]
        if method and given and given[0].kind is Parameter.POSITIONAL_OR_KEYWORD:
            given[0] = given[0].replace(name="self")
        if not method and "out" in op.forms.split() and all(p.name != "out" for p in given):
            at = next((i for i, p in enumerate(given) if p.kind is Parameter.VAR_KEYWORD), len(given))
            given.insert(at, Parameter("out", Parameter.KEYWORD_ONLY, default=None))
        return found.replace(parameters=given, return_annotation=Parameter.empty)


HELP_PAGE = Page()


class Kind(type):
    """Makes a declaration's class, and gives the operation in its place. A name with a capital is a kind of them.

    An operation is no class, although it is written as one, because `help` would show a class by its members.
    """

    def __new__(meta, name, bases, body):
        for heading, value in body.items():
            if isinstance(value, FunctionType) and not heading.startswith("__"):
                body[heading] = staticmethod(value)
            elif isinstance(value, classmethod):
                body[heading] = value.__func__
        if name.strip("_")[0].isupper():
            return super().__new__(meta, name, bases, body)
        docstring, body["__doc__"] = body.get("__doc__"), HELP_PAGE
        made = super().__new__(meta, name, bases, body)
        op = function.CalledOp.__new__(made)
        op.__name__, op.__qualname__, op.docstring = name, made.__qualname__, docstring
        made.operation = op
        return op


def _snake_to_camel(name):
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))


class Op(function.CalledOp, metaclass=Kind):
    """One operation, recorded as one instruction."""

    names = ""
    forms = "function method"
    exact = False
    eager = False
    scalars = ()
    must_fit: dict = {}       # number argument → what it must fit; see Note [A number enters a dtype] in arguments.py
    as_given = ()             # operands that stay as they are beside 16-bit floats, as numbers or without dimensions
    renamed: dict = {}        # another name of PyTorch's for an argument → ours
    deprecated = ()           # old orders of the arguments, numbers first: "input alpha other"
    refused: dict = {}        # argument of PyTorch's that is not taken → what to do instead
    returns = None
    lists = False             # whether an argument may be a list of tensors
    overwrites = False        # whether `ref` writes into its first array: it is given one that nothing else needs
    creates = False           # with `out=`, that tensor says the dtype and device of the result; "floating": but an
                              # integer one for a floating input only beside `dtype=`
    blind = False             # whether the in-place form overwrites its tensor without reading it
    overlap_ok = False        # whether the in-place form may write to an expanded tensor; "deprecated": with a warning;
                              # or a function of the arguments that says
    no_overlap = False        # which operands may not overlap the tensor that is written, in place or as `out=`: True:
                              # none in part, but the very same look may be read and written; names of arguments: those
                              # not at all, and others of `out=` not in part; or a function of the arguments that says
                              # the names
    strict_out = False        # whether `out=` must have the dtype of the result; "several": if there are several;
                              # "tensors": if all arguments are tensors; "truth": it may be bytes for bools too;
                              # or a function of the arguments that says
    real_out = False          # whether a complex `out=` is refused
    out_no_overlap = False    # whether `out=` must not overlap an argument in memory
    out_error = RuntimeError  # how an `out=` is refused whose dtype cannot hold the result
    out_resize = "warn"       # how an `out=` of another size is made to fit: "warn": with a warning; "": in silence;
                              # "count": only if it has another number of elements, in silence; "count warn": both
    out_each = False          # whether `out=` is a list of tensors, one for each result: "resized" and of its dtype, or
                              # "copied" into, whatever their shapes and dtypes
    operands = ()
    node = None
    called = None             # the public name that errors say, where the declaration is a private part of it
    number_nodes: dict = {}   # argument → the node's name where that argument is a number
    verify = holds = direct = bounds = None
    by_bounds = ""
    nondiff = ()              # results that carry no gradient although they are floating
    is_view = pointwise = composite = False
    by_specs = False          # of a composite: whether specs and plain arguments decide all that can be told from
                              # outside (INSIDE: of one that calls it alone); see tensor/follow.py
    effect = False

    prepared = False

    def __get__(op, owner, cls=None):
        return op                         # kept in a class it is no method: as PyTorch's functions, it binds nothing

    def __mro_entries__(op, bases):
        return (type(op),)                # a declaration may derive from another

    def __repr__(op):
        return f"<operation {op.__name__}>"

    def __reduce__(op):
        return op.__qualname__            # pickled and copied as functions are, by name

    __signature__ = Arguments()

    @property
    def __kwdefaults__(op):
        """As of a function: the defaults of arguments that go by name alone. monai asks for those of `meshgrid`."""
        parameters = op.__signature__.parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty} or None

    @classmethod
    def meaning(op):
        """The function whose parameters are the operation's, and how many of them are not: `ref` starts with xp."""
        ref = getattr(op, "ref", None)
        return (ref, 1) if ref else (getattr(op, "view", None) or getattr(op, "of", None) or op.meta, 0)

    @classmethod
    def prepare(op):
        """Read the signature and the derivative rules off the declaration, at the first call."""
        with _preparing:
            if not op.prepared:
                op._read_declaration()
                known[op] = Facts(op)     # a thread that finds these, or that it is prepared, finds the rest
                op.prepared = True

    @classmethod
    def _read_declaration(op):
        if op.effect and (op.is_view or op.composite or hasattr(op, "body")):
            raise TypeError(f"{op.__name__} has an effect, which is that of running its `ref`: it can be no view, no "
                            "composite, and have no body")
        main, skip = op.meaning()
        code = main.__code__
        positional = code.co_varnames[skip:code.co_argcount]
        kwonly = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
        given = main.__defaults__ or ()
        defaults = [REQUIRED] * (len(positional) - len(given)) + list(given)
        defaults += [(main.__kwdefaults__ or {}).get(name, REQUIRED) for name in kwonly]
        op.arg_names = positional + kwonly
        op.n_positional = len(positional)
        op.kwonly = kwonly
        op.defaults = tuple(defaults)
        op.required = sum(d is REQUIRED for d in defaults)
        op.scalar_at = tuple(name in op.scalars for name in op.arg_names)
        op.rules = {}
        for i, name in enumerate(op.arg_names):
            rule = getattr(op, "d_" + name, None)
            if rule is not None:
                c = rule.__code__
                op.rules[i] = (rule, c.co_varnames[1:c.co_argcount])
        joint = getattr(op, "grads", None)
        op.joint = (joint, joint.__code__.co_varnames[2:joint.__code__.co_argcount]) if joint else None
        op.differentiable = bool(op.rules or joint)
        op.saves = {}
        op.node_name = op.node or _snake_to_camel(op.__name__) + "Backward0"
        if not op.operands:
            op.operands = tuple(n for n, d in zip(op.arg_names, defaults, strict=True) if d is REQUIRED)
        elif isinstance(op.operands, str):
            op.operands = tuple(op.operands.split())
        op.operand_at = tuple(name in op.operands for name in op.arg_names)
        # where only a number will do; a zero-dimensional tensor then stands for the number in it
        op.scalar_only_at = tuple(i for i, name in enumerate(op.arg_names)
                                  if (name in op.scalars or name in op.must_fit) and name not in op.operands
                                  and not hasattr(op, f"d_{name}"))          # the weight of lerp may be a tensor
        op.flag_at = tuple(i for i, d in enumerate(defaults) if d.__class__ is bool)
        tensors = op.operands if op.pointwise else ()        # such as the degrees of polynomials
        op.count_at = tuple(i for i, name in enumerate(op.arg_names)
                            if name in COUNT_PARAMETERS and name not in op.scalars and name not in tensors)
        op.number_at = tuple(i for i, name in enumerate(op.arg_names)
                             if name in COUNT_PARAMETERS and name not in tensors or name in DIM_PARAMETERS)
        op.tail = op.defaults[2:]         # what a binary operator adds to its two operands

    @classmethod
    def bind(op, args, kwargs):
        """All arguments in the order of the signature, defaults filled in."""
        n = len(args)
        if not kwargs:
            if n == len(op.defaults):
                if n <= op.n_positional:
                    return args
            elif op.required <= n <= op.n_positional:
                return args + op.defaults[n:]
        if n > op.n_positional:
            raise TypeError(f"{op.__name__}() takes {op.n_positional} positional arguments but {n} were given; its "
                            f"arguments are ({', '.join(op.arg_names)})")
        picker = known[op].pickers.get((n, *kwargs))
        if picker is not None:
            return picker((*args, *kwargs.values(), *op.defaults))
        full = list(args) + list(op.defaults[n:])
        sources = [*range(n), *range(n + len(kwargs) + n, n + len(kwargs) + len(op.defaults))]
        for i, (name, given) in enumerate(kwargs.items()):
            if name not in op.arg_names:
                name = op.given_name(name)
            if name not in op.arg_names:
                if name in op.refused:
                    raise NotImplementedError(f"{op.__name__}({name}=): {op.refused[name]}")
                raise TypeError(f"{op.__name__}() got an unexpected keyword argument '{name}'; its arguments are "
                                f"({', '.join(op.arg_names)})")
            at = op.arg_names.index(name)
            if at < n:
                raise TypeError(f"{op.__name__}() got multiple values for argument '{name}'")
            full[at] = given
            sources[at] = n + i
        missing = [name for name, value in zip(op.arg_names, full, strict=True) if value is REQUIRED]
        if missing:
            raise TypeError(f"{op.__name__}() missing {len(missing)} required positional arguments: "
                            + ", ".join(f'"{m}"' for m in missing))
        if len(sources) > 1:
            known[op].pickers[(n, *kwargs)] = itemgetter(*sources)       # for the next call of this form
        return tuple(full)

    @classmethod
    def given_name(op, name):
        """Our name for the argument that the caller calls `name`."""
        return op.renamed.get(name) or NUMPY_PARAMETERS.get(name, name)

    @classmethod
    def modern(op, args):
        """The arguments by name, of a call in an old order; None if it is in no order at all."""
        for order in op.deprecated:
            names = order.split()
            if len(names) == len(args) and all(
                    isinstance(a, door.tensor) == (name not in FACTOR_PARAMETERS) or name == "other"
                    for name, a in zip(names, args, strict=True)):
                warn(f"This overload of {op.__name__} is deprecated: {op.__name__}({', '.join(names)}). Give "
                     f"{' and '.join(n for n in names if n in FACTOR_PARAMETERS)} by name, at the end.")
                return dict(zip(names, args, strict=True))
        return None

    @classmethod
    def check_flags(op, args):
        """Refuse a number where True or False should stand, and the other way round: `x.sort(True)` means no dimension.

        They are kept apart as PyTorch keeps them; to Python, True is a number.
        """
        for positions, wrong, right in ((op.flag_at, (int, float), "bool"), (op.count_at, (bool, float), "int")):
            for at in positions:
                if args[at].__class__ in wrong:
                    need(False, f"argument '{op.arg_names[at]}' (position {at + 1}) must be {right}, not "
                                f"{type(args[at]).__name__}: got {args[at]}", TypeError)

    @classmethod
    def infer(op, args):
        """(result specs, casts per tensor, compute dtype of scalars) of a call, from Specs and parameters."""
        out = op.meta(*args[:op.n_positional], **dict(zip(op.kwonly, args[op.n_positional:], strict=True)))
        casts = None if op.exact else [a.dtype.compute for a in flat_specs(args)]
        return out, casts, None


def flat_specs(args):
    """The Specs among `args`, lists opened."""
    for a in args:
        if a.__class__ is Spec:
            yield a
        elif a.__class__ is tuple:
            for b in a:
                if b.__class__ is Spec:
                    yield b


class Pointwise(Op):
    """Element by element over broadcast operands, in their promoted dtype.

    `result` says the result's dtype: "same" as promoted, "float" (integers become the default float first),
    "bool", or "real" (the real dtype of a complex one). `refuses` lists dtype categories that are not accepted,
    and `refuses_on_cpu` those that PyTorch's kernels for the CPU alone do not take.
    Numbers are runtime scalars: their type, not their value, is in the key.
    """

    forms = "function method inplace out"
    pointwise = no_overlap = True
    result = "same"
    refuses = refuses_on_cpu = ""
    cname = None              # PyTorch's kernel name, for its "not implemented for" message
    row_major = False         # whether the result is contiguous whatever the layout of the operands
    numbers = None            # names of the operands that may be Python numbers; None: any, beside at least one tensor
    alone = False             # whether numbers alone will do: `add(1, 2)` is a tensor
    check = None              # check(dtype, …): refusals of its own, from the promoted dtype, Specs and number types

    @classmethod
    def infer(op, args):
        operands = []
        for a, counts, name, default in zip(args, op.operand_at, op.arg_names, op.defaults, strict=True):
            if counts:
                if a.__class__ is Spec:
                    operands.append((a.dtype, 2 if a.ndim else 1))
                elif a.__class__ is type and (op.numbers is None or name in op.numbers.split()):
                    operands.append((dtypes.of_number(a), 0))
                elif default is REQUIRED or a is not default:
                    must_be_tensor(op, name, a)
        tensors = [a for a in args if a.__class__ is Spec]
        if not tensors and not op.alone:
            must_be_tensor(op, op.arg_names[0], args[0])
        common = dtypes.result_of(operands)
        shape = shapes.broadcast(*[t.shape for t in tensors]) if tensors else ()      # refused before the dtype is
        if op.refuses:
            refuse(op, common)
        if op.refuses_on_cpu and tensors and tensors[0].device.type == "cpu":
            refuse(op, common, op.refuses_on_cpu)
        if op.check is not None:
            op.check(common, *args)
        if op.result == "float" and common.category < 2:
            common = dtypes.default
        out = dtypes.bool if op.result == "bool" else common.to_real() if op.result == "real" else common
        if not tensors:
            return spec(out, ()), [], common
        first = tensors[0]
        if op.row_major or (first.contiguous and len(operands) == 1):
            strides = None
        else:
            laid = [(t.shape, t.strides) for t in tensors]
            if len(operands) > len(tensors):              # a number counts as a tensor of no dimensions
                laid.append(((), ()))
            strides = shapes.elementwise_strides(shape, laid)
        where = next((t.device for t in tensors if t.ndim), first.device)
        casts = [common.np if op.exact else common.compute] * len(tensors)
        return spec(out, shape, strides, where), casts, common


def must_be_tensor(op, name, given):
    """Refuse what stands where a tensor should."""
    type_name = given.__name__ if given.__class__ is type else given.__class__.__name__
    need(False, f"argument '{name}' (position {op.arg_names.index(name) + 1}) must be Tensor, not {type_name}",
         TypeError)


def refuse(op, dtype, refuses=None):
    """Raise PyTorch's "not implemented for" if `dtype` falls in the refused categories."""
    categories = {"bool", "int", "float", "complex", "half"} & set((refuses or op.refuses).split())
    name = ("bool", "int", "float", "complex")[dtype.category]
    half = dtype.category == 2 and dtype.itemsize == 2
    need(name not in categories and not (half and "half" in categories),
         f"\"{getattr(op, 'cname', None) or op.__name__}_cpu\" not implemented for '{dtype.cname}'",
         NotImplementedError)


class View(Op):
    """Another look at the same memory: `view(input, …)` gives (shape, strides, how far the start moves).

    A list of such triples makes several views. A fourth element, a dtype, reads the memory as that dtype.
    """

    exact = True
    is_view = True

    def meta(input):
        raise NotImplementedError


class Composite(Op):
    """An ordinary function over tensors, `of(…)`. With `d_` rules it is one autograd node; without, its parts are."""

    composite = by_specs = True

    def of():
        raise NotImplementedError


def check_devices(specs, whole):
    """Refuse tensors on different devices; a zero-dimensional CPU tensor may join any (where `whole` is False)."""
    first = None
    for s in specs:
        if s.ndim == 0 and s.device is CPU and not whole:
            continue
        if first is None:
            first = s.device
        elif s.device is not first:
            need(False, f"Expected all tensors to be on the same device, but found at least two devices, {first} and "
                        f"{s.device}! Bring them to one with .to(device).")
    return first or CPU


def wrapped(number, np_dtype):
    """A Python int brought into an integer dtype's range, wrapping around as C does."""
    info = np.iinfo(np_dtype)
    if info.min <= number <= info.max:
        return number
    return np.array(number & ((1 << info.bits) - 1), np.uint64).astype(np_dtype)[()]

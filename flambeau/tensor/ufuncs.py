"""NumPy's functions called on tensors: `np.sin(t)`, `np.add(array, t)`, `np.concatenate([t, u])`.

A NumPy function with a counterpart here is that counterpart: the result is a tensor, with its gradient and device. One
without is computed by NumPy, on tensors without gradient only. Nothing is detached in silence.
"""
import numpy as np

from ..autograd.edges import requires
from ..base import dtypes
from ..base.op import door
from ..base.spec import META
from .create import as_tensor, copy_of, from_array
from .forms import namespace
from .interop import exported, who
from .reading import array_of
from .tensor import Tensor
from .write import before_write, hide_write

# NumPy's ufunc → our function, where the names differ; all others below go by their own name.
TORCH_NAMES = {
    "absolute": "abs", "fabs": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "degrees": "rad2deg",
    "divide": "true_divide", "equal": "eq", "not_equal": "ne", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "negative": "neg", "power": "pow", "radians": "deg2rad", "rint": "round",
    "mod": "remainder"}
SAME_NAMES = set("""add bitwise_and bitwise_or bitwise_xor ceil copysign cos cosh deg2rad exp exp2 expm1 float_power
    floor floor_divide fmax fmin fmod gcd heaviside hypot isfinite isinf isnan lcm log log10 log1p log2 logaddexp
    logaddexp2 logical_and logical_not logical_or logical_xor matmul maximum minimum multiply nextafter positive rad2deg
    reciprocal remainder sign signbit sin sinh sqrt square subtract tan tanh trunc""".split())
TENSOR_ONLY_UFUNCS = set("""arctan2 copysign fmax fmin gcd heaviside hypot lcm logaddexp logaddexp2 logical_and
    logical_or logical_xor matmul maximum minimum nextafter""".split())
UFUNC_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logical_and": "all",
                    "logical_or": "any"}
UFUNC_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def counterpart(name):
    """Our function for a ufunc's name, or None."""
    own = TORCH_NAMES.get(name) or (name if name in SAME_NAMES else None)
    return namespace[""].get(own)


def operand(given):
    """An operand of an operation: arrays as tensors, all else as it is."""
    if isinstance(given, np.ndarray):
        return as_tensor(given if all(step >= 0 for step in given.strides) and given.dtype.isnative else copy_of(given))
    return given.item() if isinstance(given, np.generic) else given


door.operand = operand


def refuse(name, tensors):
    """Say that NumPy cannot compute `name` on these tensors without losing something."""
    for t in tensors:
        if requires(t):
            raise TypeError(f"numpy.{name} has no counterpart here that carries gradients, and a tensor that requires "
                            "grad is not detached in silence: use tensor.detach().numpy() (or .detach()) if no "
                            f"gradient is wanted.{who(t)}")
        if t._spec.device is META:
            raise TypeError(f"numpy.{name}: can't convert meta device type tensor to numpy.{who(t)}")


def tensors_in(things):
    """The tensors among `things`, nested lists, tuples and dictionaries opened."""
    stack, found = [things], []
    while stack:
        thing = stack.pop()
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, (list, tuple)):
            stack.extend(thing)
        elif isinstance(thing, dict):
            stack.extend(thing.values())
    return found


def as_arrays(value):
    """`value` with arrays instead of its tensors; they are for reading, since a write would go past the version."""
    if isinstance(value, Tensor):
        array = exported(value)
        array.flags.writeable = False
        return array
    if isinstance(value, (list, tuple)):
        parts = [as_arrays(part) for part in value]
        return type(value)._make(parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: as_arrays(part) for key, part in value.items()}
    return value


# --- ufuncs --------------------------------------------------


def array_ufunc(self, ufunc, method, *inputs, out=None, **kwargs):
    """Called by NumPy when a ufunc meets a tensor."""
    name = ufunc.__name__
    if method == "__call__" and not kwargs:
        made = call(counterpart(name), operands(name, inputs))
    elif method == "reduce" and name in UFUNC_REDUCTIONS and kwargs.keys() <= {"axis", "keepdims"}:
        made = reduce(namespace[""].get(UFUNC_REDUCTIONS[name]), inputs[0], **kwargs)
    elif method == "accumulate" and name in UFUNC_ACCUMULATIONS and kwargs.keys() <= {"axis"}:
        made = call(namespace[""].get(UFUNC_ACCUMULATIONS[name]), [inputs[0], kwargs.get("axis", 0)])
    elif method == "outer" and not kwargs:
        first, second = (as_tensor(operand(a)) for a in inputs)
        made = call(counterpart(name), [first.reshape(tuple(first.shape) + (1,) * second.ndim), second])
    else:
        made = None
    if made is None:
        made = by_numpy(ufunc, method, inputs, kwargs)
    return made if out is None else write(made, out, name)


def operands(name, inputs):
    """The inputs of a ufunc as its counterpart takes them."""
    args = [operand(a) for a in inputs]
    if name in TENSOR_ONLY_UFUNCS:
        dtypes_and_ranks = [(a.dtype, 2 if a.ndim else 1) if isinstance(a, Tensor) else
                            (dtypes.of_number(type(a)), 0) for a in args]
        args = [a if isinstance(a, Tensor) else as_tensor(a, dtypes.result_of(dtypes_and_ranks)) for a in args]
    if name == "matmul":                                   # NumPy promotes here, PyTorch refuses
        common = dtypes.promote_types(*[a.dtype for a in args])
        args = [a.to(common) for a in args]
    return args


def call(function, args):
    return None if function is None else function(*args)


def reduce(function, input, axis=0, keepdims=False):
    if function is None:
        return None
    if axis is None:
        axis = tuple(range(input.ndim))
    elif isinstance(axis, tuple) and not axis:
        return input
    if function.__name__ == "prod" and isinstance(axis, tuple):      # one dimension at a time
        for d in sorted((a % max(input.ndim, 1) for a in axis), reverse=True):
            input = function(input, d, keepdim=keepdims)
        return input
    return function(input, axis, keepdim=keepdims)


def by_numpy(ufunc, method, inputs, kwargs):
    """Compute by NumPy; the results are tensors, as they are for every ufunc in PyTorch."""
    refuse(ufunc.__name__, tensors_in((inputs, kwargs)))
    arrays = [array_of(a) if isinstance(a, Tensor) else a for a in inputs]
    if method == "at" and isinstance(inputs[0], Tensor):   # the one method that writes into its operand
        before_write(inputs[0], f"numpy.{ufunc.__name__}.at")
        arrays[0] = exported(inputs[0])
        inputs[0]._storage.version += 1
        if inputs[0]._data_version is not None:
            hide_write(inputs[0])
    made = getattr(ufunc, method)(*arrays, **as_arrays(kwargs))
    if isinstance(made, tuple):
        return tuple(from_array(copy_of(part)) for part in made)
    return None if made is None else from_array(copy_of(np.asarray(made)))


def write(made, out, name):
    """Put the result into `out=`, an array or a tensor."""
    results = made if isinstance(made, tuple) else (made,)
    for target, result in zip(out, results, strict=True):
        if isinstance(target, Tensor):
            target.copy_(result)
        elif target is not None:
            if requires(result):
                raise TypeError(f"numpy.{name}: the result requires grad and cannot be written into a NumPy array, "
                                f"which has none: use tensor.detach() if no gradient is wanted.{who(result)}")
            np.copyto(target, array_of(result), casting="same_kind")
    return out[0] if len(out) == 1 else tuple(r if o is None else o for o, r in zip(out, results, strict=True))


# --- other functions --------------------------------------------------

NUMPY_FUNCTIONS: dict = {}    # NumPy's function → ours


def implements(*functions):
    """Register the decorated function as the counterpart of NumPy's."""
    def register(own):
        NUMPY_FUNCTIONS.update(dict.fromkeys(functions, own))
        return own
    return register


def array_function(self, func, types, args, kwargs):
    """Called by NumPy when one of its functions meets a tensor."""
    own = NUMPY_FUNCTIONS.get(func)
    if own is not None:
        try:
            made = own(*args, **kwargs)
        except Unmatched:
            made = NotImplemented
        if made is not NotImplemented:
            return made
    refuse(func.__name__, tensors_in((args, kwargs)))
    return func(*as_arrays(args), **as_arrays(kwargs))


class Unmatched(Exception):
    """The counterpart does not take these arguments; NumPy is to compute."""


def plain(*unused):
    """Refuse the counterpart unless the arguments that it does not know were left out."""
    for given in unused:
        if given is not None and given is not np._NoValue and given is not False:
            raise Unmatched


def torch(name):
    """Our function `name`."""
    found = namespace[""].get(name)
    if found is None:
        raise Unmatched
    return found


def axes(axis, input):
    """All dimensions for an axis of None."""
    return tuple(range(input.ndim)) if axis is None else axis


def reducing(name):
    def own(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None, **rest):
        plain(dtype, out, initial, where, *rest.values())
        keepdims = keepdims is True
        if axis is None and not keepdims:
            return torch(name)(operand(a))
        return reduce(torch(name), operand(a), axes(axis, a), keepdims)
    return own


for function, name in ((np.sum, "sum"), (np.prod, "prod"), (np.mean, "mean"), (np.all, "all"), (np.any, "any")):
    NUMPY_FUNCTIONS[function] = reducing(name)


@implements(np.max, np.amax)
def largest(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    plain(out, initial, where)
    return torch("amax")(a, axes(axis, a), keepdim=keepdims is True)


@implements(np.min, np.amin)
def smallest(a, axis=None, out=None, keepdims=False, initial=None, where=None):
    plain(out, initial, where)
    return torch("amin")(a, axes(axis, a), keepdim=keepdims is True)


def spreading(name):
    def own(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
        plain(dtype, out, where, mean)
        ddof = correction if correction is not None and correction is not np._NoValue else ddof
        return torch(name)(a, axes(axis, a), correction=ddof, keepdim=keepdims is True)
    return own


NUMPY_FUNCTIONS[np.std], NUMPY_FUNCTIONS[np.var] = spreading("std"), spreading("var")


def finding(name):
    def own(a, axis=None, out=None, *, keepdims=False):
        plain(out)
        return torch(name)(a, axis, keepdim=keepdims is True)
    return own


NUMPY_FUNCTIONS[np.argmax], NUMPY_FUNCTIONS[np.argmin] = finding("argmax"), finding("argmin")


def running(name):
    def own(a, axis=None, dtype=None, out=None):
        plain(dtype, out)
        return torch(name)(a.reshape(-1), 0) if axis is None else torch(name)(a, axis)
    return own


NUMPY_FUNCTIONS[np.cumsum], NUMPY_FUNCTIONS[np.cumprod] = running("cumsum"), running("cumprod")


@implements(np.concatenate)
def concatenate(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    plain(out, dtype)
    parts = [as_tensor(operand(a)) for a in arrays]
    return torch("cat")([p.reshape(-1) for p in parts] if axis is None else parts, 0 if axis is None else axis)


@implements(np.stack)
def stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    plain(out, dtype)
    return torch("stack")([as_tensor(operand(a)) for a in arrays], axis)


def joining(name):
    def own(tup, *, dtype=None, casting="same_kind"):
        plain(dtype)
        return torch(name)([as_tensor(operand(a)) for a in tup])
    return own


for function, name in ((np.vstack, "vstack"), (np.hstack, "hstack"), (np.dstack, "dstack")):
    NUMPY_FUNCTIONS[function] = joining(name)
NUMPY_FUNCTIONS[np.column_stack] = lambda tup: torch("column_stack")([as_tensor(operand(a)) for a in tup])


@implements(np.where)
def where(condition, x=None, y=None):
    if x is None:
        return torch("where")(as_tensor(operand(condition)))
    return torch("where")(as_tensor(operand(condition)), operand(x), operand(y))


@implements(np.clip)
def clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None, **rest):
    plain(out, *rest.values())
    low, high = (None if given is np._NoValue else given for given in (a_min, a_max))
    return torch("clamp")(operand(a), operand(low if low is not None else None if min is np._NoValue else min),
                          operand(high if high is not None else None if max is np._NoValue else max))


@implements(np.reshape)
def reshape(a, /, shape=None, order="C", *, newshape=None, copy=None):
    plain(copy)
    if order != "C":
        raise Unmatched
    shape = newshape if shape is None else shape
    return a.reshape(shape if isinstance(shape, (tuple, list)) else (shape,))


@implements(np.transpose)
def transpose(a, axes=None):
    return a.permute(tuple(range(a.ndim))[::-1] if axes is None else tuple(axes))


@implements(np.squeeze)
def squeeze(a, axis=None):
    return a.squeeze() if axis is None else a.squeeze(axis)


@implements(np.expand_dims)
def expand_dims(a, axis):
    if not isinstance(axis, int):
        raise Unmatched
    return a.unsqueeze(axis)


@implements(np.ravel)
def ravel(a, order="C"):
    if order != "C":
        raise Unmatched
    return a.reshape(-1)


@implements(np.round, np.around)
def rounded(a, decimals=0, out=None):
    plain(out)
    return torch("round")(a, decimals=decimals)


@implements(np.dot)
def dot(a, b, out=None):
    plain(out)
    a, b = as_tensor(operand(a)), as_tensor(operand(b))
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if b.ndim > 2:                                         # NumPy's dot and matmul part ways here
        raise Unmatched
    return torch("matmul")(a, b)


@implements(np.einsum)
def einsum(*operands, out=None, optimize=False, **rest):
    plain(out, *rest.values())
    if not isinstance(operands[0], str):
        raise Unmatched
    return torch("einsum")(operands[0], *[as_tensor(operand(a)) for a in operands[1:]])


@implements(np.tensordot)
def tensordot(a, b, axes=2):
    return torch("tensordot")(as_tensor(operand(a)), as_tensor(operand(b)), dims=axes)


@implements(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    return linalg("norm")(x, ord, axis, keepdims)


def linalg(name):
    """Our function `linalg.name`."""
    found = namespace["linalg"].get(name)
    if found is None:
        raise Unmatched
    return found


def solving(name):
    def own(*args, **kwargs):
        plain(*kwargs.values())
        return linalg(name)(*[operand(a) for a in args])
    return own


for name in ("inv", "det", "solve", "cholesky", "matrix_power", "eigvalsh"):
    NUMPY_FUNCTIONS[getattr(np.linalg, name)] = solving(name)


@implements(np.sort)
def sort(a, axis=-1, kind=None, order=None, *, stable=None):
    plain(order)
    return torch("sort")(a.reshape(-1) if axis is None else a, -1 if axis is None else axis)[0]


@implements(np.argsort)
def argsort(a, axis=-1, kind=None, order=None, *, stable=None):
    plain(order)
    return torch("argsort")(a.reshape(-1) if axis is None else a, -1 if axis is None else axis)


for function, name in ((np.swapaxes, "transpose"), (np.moveaxis, "movedim"), (np.outer, "outer"), (np.inner, "inner"),
                       (np.tril, "tril"), (np.triu, "triu"), (np.trace, "trace"), (np.diag, "diag"), (np.kron, "kron"),
                       (np.broadcast_to, "broadcast_to"), (np.flip, "flip"), (np.isclose, "isclose"),
                       (np.allclose, "allclose"), (np.array_equal, "equal"), (np.count_nonzero, "count_nonzero")):
    def own(*args, _name=name, **kwargs):
        if kwargs or len(args) > 3:
            raise Unmatched
        args = [as_tensor(operand(a)) if isinstance(a, (np.ndarray, list)) else a for a in args]
        if _name == "flip":
            args = [args[0], axes(args[1] if len(args) > 1 else None, args[0])]
        if _name in ("equal", "isclose", "allclose") and not all(isinstance(a, Tensor) for a in args[:2]):
            args[:2] = [as_tensor(a) for a in args[:2]]
        return torch(_name)(*args)
    NUMPY_FUNCTIONS[function] = own


# What a function asks of the shape alone, gradients do not come into.
NUMPY_FUNCTIONS[np.shape] = lambda a: tuple(a.shape)
NUMPY_FUNCTIONS[np.ndim] = lambda a: a.ndim
NUMPY_FUNCTIONS[np.size] = lambda a, axis=None: a.numel() if axis is None else a.shape[axis]


def making(name):
    def own(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
        plain(dtype, shape, device)
        if order != "K":
            raise Unmatched
        return torch(name)(a)
    return own


for function, name in ((np.zeros_like, "zeros_like"), (np.ones_like, "ones_like"), (np.empty_like, "empty_like")):
    NUMPY_FUNCTIONS[function] = making(name)


@implements(np.full_like)
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    plain(dtype, shape, device)
    return torch("full_like")(a, fill_value)


@implements(np.copy)
def copy(a, order="K", subok=False):
    return a.clone()


del function, name, own
Tensor.__array_ufunc__, Tensor.__array_function__ = array_ufunc, array_function

"""`torch._foreach_*`: one operation on each tensor of a list, as optimizers of packages are written.

PyTorch has these to start fewer kernels. Here every call is recorded, and what belongs together is fused anyway, so
they are loops. The second argument is a list of tensors, a list of numbers, a number, or a tensor of one element for
all. Results are a tuple; the forms that write (`_foreach_add_`) give the list back.
"""
from ..base.op import NUMBER_CLASSES
from . import forms
from .functions import __getattr__ as function
from .tensor import Tensor

UNARY_FUNCTIONS = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc""".split()
# operation → the names of its second argument: a list of tensors, one number, a list of numbers, one tensor
BINARY_OVERLOADS = {"add": "other scalar scalars", "sub": "other scalar scalars", "mul": "other scalar scalars",
                    "div": "other scalar scalars", "clamp_max": "other scalar scalars",
                    "clamp_min": "other scalar scalars", "maximum": "other scalar scalars",
                    "minimum": "other scalar scalars", "pow": "exponent"}
FUNCTIONS_WITH_ALPHA = ("add", "sub")                   # these take alpha=
TERNARY_FUNCTIONS = ("addcmul", "addcdiv")


def tensors(given, what, position=1):
    """A list of tensors, checked."""
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{what}() argument {position} must be a tuple of Tensors, not {type(given).__name__}")
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise TypeError(f"{what}(): expected Tensor as element {i} in argument {position - 1}, but got "
                            f"{type(t).__name__}")
    if not given:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return given


def beside(given, xs):
    """What stands beside each tensor of `xs`."""
    if isinstance(given, (list, tuple)):
        if len(given) != len(xs):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(xs)} and {len(given)}"
                               if given and isinstance(given[0], Tensor) else
                               "Tensor list must have same number of elements as scalar list.")
        return given
    return [given] * len(xs)


def one_element(given):
    """A tensor that stands for one number."""
    if isinstance(given, Tensor) and given.dim():
        raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {given.dim()} dimensions and "
                           f"{given.numel()} elements.")
    return given


def unary(name):
    """An operation of one tensor, and its form that writes."""
    op = function(name)

    def form(self):
        return tuple([op(x) for x in tensors(self, f"_foreach_{name}")])

    def writing(self):
        for x in tensors(self, f"_foreach_{name}_"):
            getattr(x, f"{name}_")()
        return self
    return form, writing


def binary(name):
    """An operation of two, and its form that writes."""
    op, own = function(name), BINARY_OVERLOADS[name].split()
    clamped = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name)

    def act(x, y, alpha):
        if clamped and y.__class__ in NUMBER_CLASSES:    # beside a number they are the same, and there is one form less
            return function(clamped)(x, y)
        return op(x, y) if alpha is None else op(x, y, alpha=alpha)

    def put(x, y, alpha):
        if name in ("maximum", "minimum"):
            return x.copy_(act(x, y, alpha))
        write = getattr(x, f"{name}_")
        return write(y) if alpha is None else write(y, alpha=alpha)

    def second(args, kwargs):
        named = [kwargs.pop(key) for key in own if key in kwargs]
        given = [*args, *named]
        if len(given) != 1:
            raise TypeError(f"_foreach_{name}() takes a list of tensors and one argument more, got {len(given)}")
        alpha = kwargs.pop("alpha", None) if name in FUNCTIONS_WITH_ALPHA else None
        if kwargs:
            raise TypeError(f"_foreach_{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        return given[0], alpha

    def form(self, *args, **kwargs):
        other, alpha = second(args, kwargs)
        if name == "pow" and self.__class__ in NUMBER_CLASSES:  # a number to the power of each
            return tuple([op(self, y) for y in tensors(other, "_foreach_pow", 2)])
        xs = tensors(self, f"_foreach_{name}")
        return tuple([act(x, y, alpha) for x, y in zip(xs, beside(one_element(other), xs), strict=True)])

    def writing(self, *args, **kwargs):
        other, alpha = second(args, kwargs)
        xs = tensors(self, f"_foreach_{name}_")
        for x, y in zip(xs, beside(one_element(other), xs), strict=True):
            put(x, y, alpha)
        return self
    return form, writing


def ternary(name):
    """`addcmul` or `addcdiv`, and its form that writes; the factor may differ from tensor to tensor."""
    op = function(name)

    def factors(value, scalars, xs):
        value = scalars if scalars is not None else value
        if isinstance(value, Tensor):
            if value.dim() != 1 or value.shape[0] != len(xs):
                raise RuntimeError("Expected packed scalar Tensor to be of dimension 1, with one element for each of "
                                   f"{len(xs)} tensors. Got {list(value.shape)} instead.")
            value = value.tolist()
        return beside(value, xs)

    def form(self, tensor1, tensor2, value=1, *, scalars=None):
        xs = tensors(self, f"_foreach_{name}")
        return tuple([op(x, a, b, value=v) for x, a, b, v in zip(
            xs, beside(tensor1, xs), beside(tensor2, xs), factors(value, scalars, xs), strict=True)])

    def writing(self, tensor1, tensor2, value=1, *, scalars=None):
        xs = tensors(self, f"_foreach_{name}_")
        for x, a, b, v in zip(xs, beside(tensor1, xs), beside(tensor2, xs), factors(value, scalars, xs), strict=True):
            getattr(x, f"{name}_")(a, b, value=v)
        return self
    return form, writing


def _foreach_lerp(self, tensors1, weight=None, *, weights=None):
    """Between each tensor and its partner, `weight` of the way: a number, numbers, or tensors."""
    xs = tensors(self, "_foreach_lerp")
    weight = weights if weight is None else weight
    return tuple([function("lerp")(x, y, w)
                  for x, y, w in zip(xs, beside(tensors1, xs), beside(weight, xs), strict=True)])


def _foreach_lerp_(self, tensors1, weight=None, *, weights=None):
    """`_foreach_lerp`, written into the tensors."""
    xs = tensors(self, "_foreach_lerp_")
    weight = weights if weight is None else weight
    for x, y, w in zip(xs, beside(tensors1, xs), beside(weight, xs), strict=True):
        x.lerp_(y, w)
    return self


def _foreach_copy_(self, src, non_blocking=False):
    """Copy each of `src` into its partner."""
    xs = tensors(self, "_foreach_copy_")
    for x, y in zip(xs, beside(tensors(src, "_foreach_copy_", 2), xs), strict=True):
        x.copy_(y)
    return self


def _foreach_zero_(self):
    """Fill each tensor with zeros."""
    for x in tensors(self, "_foreach_zero_"):
        x.zero_()
    return self


def _foreach_clone(self, *, memory_format=None):
    """A copy of each tensor."""
    more = {} if memory_format is None else {"memory_format": memory_format}
    return tuple([x.clone(**more) for x in tensors(self, "_foreach_clone")])


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor."""
    norm = forms.namespace["linalg"]["vector_norm"]
    return tuple([norm(x, ord, dtype=dtype) for x in tensors(self, "_foreach_norm")])


def _foreach_powsum(self, ord=2, dtype=None):
    """The sum of the magnitudes of each tensor, to the power of `ord`."""
    return tuple([x.abs().pow(ord).sum(dtype=dtype) for x in tensors(self, "_foreach_powsum")])


def _foreach_max(self):
    """The largest element of each tensor."""
    return tuple([x.max() for x in tensors(self, "_foreach_max")])


def _foreach_mm(self, mat2):
    """The product of each matrix with its partner."""
    xs = tensors(self, "_foreach_mm")
    return tuple([x.mm(y) for x, y in zip(xs, beside(tensors(mat2, "_foreach_mm", 2), xs), strict=True)])


for _kind, _names in ((unary, UNARY_FUNCTIONS), (binary, BINARY_OVERLOADS), (ternary, TERNARY_FUNCTIONS)):
    for _name in _names:
        for _form, _own in zip(_kind(_name), (f"_foreach_{_name}", f"_foreach_{_name}_"), strict=True):
            _form.__name__ = _form.__qualname__ = _own
            _form.__doc__ = f"`{_name}` of each tensor of a list" + (", written into them." if _own[-1] == "_" else ".")
            globals()[_own] = _form
FOREACH_NAMES = frozenset(name for name in globals() if name.startswith("_foreach_"))

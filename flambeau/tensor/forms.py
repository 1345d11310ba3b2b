"""Declarations to forms: the function, the method, the in-place form and the operators of every operation.

A part of the compiled core: see Note [One source, two speeds] in base/core.py.

`namespace` maps a dotted prefix ("" for the top, "nn.functional", "linalg", …) to its functions by name.
"""
import importlib
import sys

import numpy as np

from ..base.op import Op, _snake_to_camel, door
from .autocast import note
from .call import call
from .find import number_types
from .follow import followed
from .known_calls import OperatorForm, call_cached, operands, spelled
from .overrides import tensor_types
from .tensor import Tensor
from .write import inplace

OPS_MODULES = ("create", "ranges", "convert", "arith", "power", "bits", "math", "rounding", "complex", "compare",
               "reduce", "extremes", "moments", "softmax", "order", "cumulative", "counting", "shape", "view", "slices",
               "pieces", "arrange", "index", "index_along", "mask", "scatter", "search", "embedding", "matmul", "addmm",
               "einsum", "solve", "factor", "spectral", "linalg", "linalg_norm", "distance", "conv", "unfold", "pool",
               "maxpool", "fractional", "pad", "corners", "resample", "activation", "relu", "dropout", "attention",
               "norm", "batch_norm", "recurrence", "lstm", "gru", "recurrent", "packing", "weights", "loss",
               "cross_entropy", "ctc", "linear_loss", "integer_products", "quantize", "special", "orthogonal",
               "sampling", "fft", "stft", "window", "copies")

namespace: dict = {"": {}, "nn.functional": {}, "linalg": {}, "special": {}}
declared: dict = {}           # class name → operation

# operator → (operation, arguments reversed)
BINARY_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "floordiv": "floor_divide",
                    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
                    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
# reflected operators that are not the operation with its arguments reversed: what is called with the tensor first
REFLECTED_OPERATORS = {"add": "add", "mul": "mul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
                       "sub": "rsub", "truediv": "_rdiv"}
COMPARISON_OPERATORS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
UNARY_OPERATORS = {"neg": "neg", "invert": "bitwise_not", "abs": "abs", "pos": "positive"}


def method(op, name):
    """The method form: the tensor comes first."""
    primitive, by_specs = not op.composite, op.by_specs

    def form(self, *args, **kwargs):
        if primitive:
            if not kwargs and len(args) < 2 and (type(self) is Tensor or type(self) in tensor_types):
                return operands(op, (self, *args), form)
            return call_cached(op, (self, *args), kwargs, form)
        if by_specs:
            made = followed(op, (self, *args), kwargs)
            if made is not None:
                return made
        return call(op, (self, *args), kwargs, form)
    return with_metadata(form, op, name, op.docstring)


def with_metadata(form, op, name, docstring):
    """`form` with the name and the docstring that `help` and `inspect` show; by `__wrapped__` they find arguments and
    source."""
    function = function_name(op)
    if docstring and "function" in op.forms.split() and not function.startswith("torch.Tensor."):
        docstring = f"{docstring.rstrip()}\n\n{DOCSTRING_INDENT}help({function}) has the arguments and an example."
    form.__name__, form.__qualname__, form.__doc__ = name, f"Tensor.{name}", docstring
    form.op, form.__wrapped__ = op, type(op)
    return form


FORM_TYPE = type(method)      # the type of functions; where the core is compiled, forms have one of their own
DOCSTRING_INDENT = "" if sys.version_info >= (3, 13) else "    "        # Python takes it away from 3.13 on


def function_name(op):
    """Where the function of `op` is found: `torch.add`, `torch.nn.functional.gelu`."""
    own = op.__qualname__.removesuffix("_")
    names = op.names.split()                      # one that is ours alone may have none
    return f"torch.{names[0] if own.startswith('_') and names else own}"


def attribute(op, name):
    """The attribute form: reading `x.name` calls the operation, assigning to it writes into the view it gives."""
    def get(self):
        return call(op, (self,), {})

    def put(self, value):
        get(self).copy_(value) if isinstance(value, Tensor) else get(self).fill_(value)
    return property(get, put, doc=op.docstring)


def in_place(op, name):
    """The in-place form `name_`."""
    def form(self, *args, **kwargs):
        return inplace(op, (self, *args), kwargs, form)
    docstring = f"In-place form of `{op.__name__}`: the result replaces this tensor's contents."
    return with_metadata(form, op, name, docstring)


def operator(op, name, reverse):
    """The operator form. Operands that it does not take are left to their own operators."""
    primitive, by_specs = not op.composite, op.by_specs

    def form(self, other):
        c = type(other)       # not `__class__`: a number that is being traced says there what it stands for
        args = (other, self) if reverse else (self, other)
        if (type(self) is Tensor or type(self) in tensor_types) \
                and (c is Tensor or c in tensor_types or c in number_types):
            if primitive:
                return operands(op, args, public)
            if by_specs:
                made = followed(op, args, {})
                if made is not None:
                    return made
            return call(op, args, {})
        if not takes(other) or isinstance(other, np.ndarray):        # an array's own operator comes to __array_ufunc__
            return NotImplemented
        return call(op, args, {}, None if reverse else spelled(op, form))
    form.__name__, form.__qualname__, form.op = name, f"Tensor.{name}", op
    public = None if reverse else OperatorForm(form)
    return form


def unary(op):
    """The operator of one operand."""
    primitive = not op.composite

    def form(self):
        if primitive and type(self) is Tensor:
            return operands(op, (self,), None)
        return call(op, (self,), {}, None if self.__class__ is Tensor else spelled(op, op))
    return form


def inverted(op):
    """The operator `~`, which refuses floats in other words than the function does."""
    plain = unary(op)

    def form(self):
        if self._spec.dtype.category > 1:
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors, and this one "
                            f"is {self._spec}")
        return plain(self)
    return form


def augmented(op, name):
    """The operator that writes into its left operand."""
    def form(self, other):
        if self.__class__ is Tensor and other.__class__ is Tensor:
            return inplace(op, (self, other), {})
        if not takes(other):
            return NotImplemented
        if isinstance(other, np.ndarray):
            other = door.operand(other)
        return inplace(op, (self, other), {}, spelled(op, form, "_"))
    form.__name__, form.__qualname__, form.op = name, f"Tensor.{name}", op
    return form


def takes(other):
    """Whether an operator accepts `other` as its second operand."""
    return isinstance(other, (Tensor, bool, int, float, complex)) or hasattr(other, "__array_interface__") \
        or hasattr(type(other), "__torch_function__")


def attach(op):
    """Hang every form of one declaration where its names say."""
    forms = op.forms.split()
    own = op.__name__.removesuffix("_")
    names = [] if own.startswith("_") else [own]
    note(op, (own, *op.names.split()))
    if own.startswith("_") and op.names:                # from here on it goes by its public name, in messages too
        op.node = op.node or _snake_to_camel(own) + "Backward0"
        own = op.names.split()[0].rpartition(".")[2]
    op.__name__ = type(op).__name__ = own
    for name in (*names, *op.names.split()):
        prefix, _, last = name.rpartition(".")
        if prefix == "Tensor":
            setattr(Tensor, last, method(op, last))
            continue
        if "function" in forms:
            namespace.setdefault(prefix, {})[last] = op
        if not prefix:
            if "method" in forms and last not in Tensor.__dict__:
                setattr(Tensor, last, method(op, last))
            if "property" in forms:
                setattr(Tensor, last, attribute(op, last))
            if "inplace" in forms:
                setattr(Tensor, last + "_", in_place(op, last + "_"))
        if "inplace" in forms and "function" in forms:
            form = Tensor.__dict__.get(last + "_") or in_place(op, last + "_")
            namespace.setdefault(prefix, {}).setdefault(last + "_", form)


def attach_all():
    """Read every module of `ops/` and hang up its declarations."""
    package = __name__.rpartition(".")[0].rpartition(".")[0]
    for module in OPS_MODULES:
        found = importlib.import_module(f"{package}.ops.{module}")
        for name, op in vars(found).items():
            if isinstance(op, Op) and op.__module__ == found.__name__ and op.__qualname__ == name:      # no second name
                declared[name] = op
                attach(op)
    top = namespace[""]
    for name, target in BINARY_OPERATORS.items():
        op = top.get(target)
        if op is None: continue
        setattr(Tensor, f"__{name}__", operator(op, f"__{name}__", False))
        reflected = declared.get(REFLECTED_OPERATORS.get(name))
        setattr(Tensor, f"__r{name}__", operator(reflected or op, f"__r{name}__", reflected is None))
        if "inplace" in op.forms.split():         # else `x @= y` gives `x` another tensor, as Python has it
            setattr(Tensor, f"__i{name}__", augmented(op, f"__i{name}__"))
    for name, target in COMPARISON_OPERATORS.items():
        if target not in top: continue
        setattr(Tensor, f"__{name}__", operator(top[target], f"__{name}__", False))
    for name, target in UNARY_OPERATORS.items():
        op = top.get(target)
        if op is None: continue
        setattr(Tensor, f"__{name}__", inverted(op) if name == "invert" else unary(op))
    door.operations, door.page = declared, page


def page(op):
    """What `help` shows of an operation: read when it is asked for."""
    return importlib.import_module(".help", __package__).page(op)

"""The graph that `torch.jit._get_trace_graph` gives to those who count: fvcore, torchprofile.

There is no TorchScript here, so nothing runs from this graph. It lists the calls of one run under the names that
PyTorch's operators have, with their arguments in the order of those, and the shapes of all tensors. A function of ours
that is no operator of PyTorch's is listed as the calls it makes.
"""
import functools
import inspect

from ..base.dtypes import float64
from ..base.op import Op, known
from ..base.pytree import tree_leaves
from ..compat._library.aten import ARITHMETIC, names
from ..compat._library.called import called_name
from ..nn import Module
from ..overrides import TorchFunctionMode
from ..tensor.composite import call_composite
from ..tensor.create import tensor
from ..tensor.infer import prepared
from ..tensor.tensor import Tensor

# Arguments of operators whose order is another one than that of our function.
ATEN_ORDERS = {
    "batch_norm": "input weight bias running_mean running_var training momentum eps",
    "instance_norm": "input weight bias running_mean running_var use_input_stats momentum eps",
    "embedding": "weight input padding_idx scale_grad_by_freq sparse",
}
GIVE_LISTS = ("chunk", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk", "unsafe_split")
CONSTANT_TYPES = {bool: ("bool", "i"), int: ("int", "i"), float: ("float", "f"), complex: ("complex", "c"),
                  str: ("str", "s")}


class ShapedType:
    """What is known of a tensor."""

    def __init__(self, of):
        self._sizes, self._strides = list(of.shape), list(of.stride())
        self._scalar, self._device = of.dtype.cname, of.device

    def kind(self):
        return "TensorType"

    def sizes(self):
        return self._sizes

    def dim(self):
        return len(self._sizes)

    def strides(self):
        return self._strides

    def scalarType(self):
        return self._scalar

    def device(self):
        return self._device

    def __str__(self):
        return f"{self._scalar}({', '.join(map(str, self._sizes))})"


class PlainType:
    """The type of what is no tensor."""

    def __init__(self, name):
        self._name = name

    def kind(self):
        return "ListType" if self._name.endswith("[]") else f"{self._name.capitalize()}Type"

    def __str__(self):
        return self._name


class CallValue:
    """What a node takes or gives."""

    def __init__(self, node, number, type, plain=None):
        self._node, self._number, self._type, self._plain = node, number, type, plain

    def node(self):
        return self._node

    def unique(self):
        return self._number

    def debugName(self):
        return str(self._number)

    def type(self):
        return self._type

    def isCompleteTensor(self):
        return isinstance(self._type, ShapedType)

    def toIValue(self):
        return self._plain

    def __repr__(self):
        return f"{self._number} defined in ({self._node})"


class TracedCall:
    """A call: what its operator is, takes and gives."""

    def __init__(self, kind, scope, attributes=()):
        self._kind, self._scope, self._attributes = kind, scope, dict(attributes)
        self._inputs, self._outputs = [], []

    def kind(self):
        return self._kind

    def inputs(self):
        return iter(self._inputs)

    def outputs(self):
        return iter(self._outputs)

    def inputsSize(self):
        return len(self._inputs)

    def outputsSize(self):
        return len(self._outputs)

    def output(self):
        one, = self._outputs
        return one

    def scopeName(self):
        return self._scope

    def attributeNames(self):
        return list(self._attributes)

    def kindOf(self, name):
        return self._attributes[name][0]

    def _attribute(self, name):
        return self._attributes[name][1]

    i = f = s = c = t = _attribute

    def __str__(self):
        given = ", ".join(f"%{v.debugName()} : {v.type()}" for v in self._outputs)
        attributes = ", ".join(f"{name}={value!r}" for name, (type_code, value) in self._attributes.items()
                               if type_code != "t")
        taken = ", ".join(f"%{v.debugName()}" for v in self._inputs)
        return f"{given} = {self._kind}{f'[{attributes}]' if attributes else ''}({taken})"


class CallGraph:
    """The calls of a run, in order."""

    def __init__(self):
        self._parameters, self._nodes, self._results = TracedCall("prim::Param", ""), [], TracedCall("prim::Return", "")

    def nodes(self):
        return iter(self._nodes)

    def inputs(self):
        return self._parameters.outputs()

    def outputs(self):
        return self._results.inputs()

    def __str__(self):
        given = ",\n      ".join(f"%{v.debugName()} : {v.type()}" for v in self.inputs())
        results = ", ".join(f"%{v.debugName()}" for v in self.outputs())
        return "\n".join([f"graph({given}):", *(f"  {node}" for node in self._nodes), f"  return ({results})", ""])


class TracingState:
    """A graph that is being made, and the scope that its nodes are in."""

    def __init__(self):
        self._graph, self._scopes = CallGraph(), []
        self._values, self._kept, self._count = {}, [], 0        # id of a tensor → Value; the tensors, so that ids stay

    def push_scope(self, name):
        self._scopes.append(name)

    def pop_scope(self):
        self._scopes.pop()

    def graph(self):
        return self._graph

    def node(self, kind, attributes=()):
        made = TracedCall(kind, "/".join(self._scopes), attributes)
        self._graph._nodes.append(made)
        return made

    def value(self, node, type, plain=None):
        made = CallValue(node, self._count, type, plain)
        self._count += 1
        node._outputs.append(made)
        return made

    def tensor_of(self, node, tensor):
        """The Value of a tensor that `node` gives."""
        made = self._values[id(tensor)] = self.value(node, ShapedType(tensor))
        self._kept.append(tensor)
        return made

    def given(self, thing):
        """The Value of an argument: known, a constant, or a list of such."""
        if isinstance(thing, Tensor):
            return self._values.get(id(thing)) or self.tensor_of(
                self.node("prim::Constant", {"value": ("t", thing)}), thing)
        if isinstance(thing, (list, tuple)):
            parts = [self.given(one) for one in thing]
            node = self.node("prim::ListConstruct")
            node._inputs += parts
            first = "Tensor" if not parts or parts[0].isCompleteTensor() else str(parts[0].type())
            return self.value(node, PlainType(f"{first}[]"))
        name, letter = CONSTANT_TYPES.get(type(thing), ("NoneType", None))
        node = self.node("prim::Constant", {"value": (letter, thing)} if letter else {})
        return self.value(node, PlainType(name), thing)


class _Lister(TorchFunctionMode):
    """Notes the calls that are operators of PyTorch's."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, op = func.__name__, func if isinstance(func, Op) else getattr(func, "op", None)
        operator = None if name == "__get__" else called_name(name, args)
        if operator is None:
            return func(*args, **kwargs)
        if operator.removeprefix("aten::") not in names() and op is not None and op.composite:
            with self:
                return call_composite(op, known.get(op) or prepared(op), args, kwargs)
        operator, given = _operator(operator, func, args, kwargs)
        inputs = [self.state.given(one) for one in given]
        made = func(*args, **kwargs)
        results = [one for one in tree_leaves(made) if isinstance(one, Tensor)]
        if results:
            node = self.state.node(operator)
            node._inputs += inputs
            if name in GIVE_LISTS:
                unpacked = self.state.node("prim::ListUnpack")
                unpacked._inputs.append(self.state.value(node, PlainType("Tensor[]")))
                node = unpacked
            for one in results:
                self.state.tensor_of(node, one)
        return made


def _as_tensor(number):
    return tensor(number, dtype=float64 if isinstance(number, float) else None)


_signature = functools.cache(inspect.signature)


def _operator(operator, func, args, kwargs):
    """The operator that a call is in PyTorch's trace, and its arguments."""
    bound = _signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    name, called = func.__name__, bound.arguments
    if called.pop("inplace", False):
        operator += "_"
    if name == "einsum":
        return operator, [args[0], args[1:], None]
    if operator.removeprefix("aten::").rstrip("_") in ARITHMETIC:      # a number is a tensor to these
        return operator, [_as_tensor(one) if isinstance(one, (int, float)) else one for one in bound.args]
    order = ATEN_ORDERS.get(name, "").split()
    if order and called.keys() >= set(order):         # `torch.embedding` has the operator's own order
        return operator, [called[argument] for argument in order]
    if name.startswith("conv") and name[-1] == "d":
        sizes = int(name[-2])
        several = {argument: [called[argument]] * sizes if isinstance(called[argument], int) else called[argument]
                   for argument in ("stride", "padding", "dilation", "output_padding") if argument in called}
        if isinstance(called["padding"], str):
            return "aten::_convolution_mode", [called["input"], called["weight"], called["bias"], several["stride"],
                                               called["padding"], several["dilation"], called["groups"]]
        return "aten::_convolution", [called["input"], called["weight"], called["bias"], several["stride"],
                                      several["padding"], several["dilation"], "transpose" in name,
                                      several.get("output_padding", [0] * sizes), called["groups"], False, False, True,
                                      True]
    return operator, [*bound.args, *bound.kwargs.values()]


def trace_graph(f, args, kwargs, return_inputs, tracing):
    """(CallGraph, what `f(*args, **kwargs)` gave), and the arguments if `return_inputs`;
    `tracing.state` says meanwhile what is being made."""
    args = args if isinstance(args, tuple) else (args,)
    state, before = TracingState(), tracing.state
    parameters = f.state_dict(keep_vars=True).values() if isinstance(f, Module) else ()
    for one in [*(one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)), *parameters]:
        state.tensor_of(state._graph._parameters, one)
    tracing.state = state
    try:
        with _Lister(state):
            made = f(*args, **kwargs)
    finally:
        tracing.state = before
    state._graph._results._inputs += [state.given(one) for one in tree_leaves(made) if isinstance(one, Tensor)]
    return (state._graph, made, args) if return_inputs else (state._graph, made)

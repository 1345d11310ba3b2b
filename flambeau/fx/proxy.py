"""A Proxy stands for a value while a function is traced: what is done with it becomes a node of the graph."""
import dis
import enum
import inspect
import operator
import sys

from ..base.dtypes import dtype
from ..base.layout import layout, memory_format
from ..base.spec import device
from ..tensor.tensor import Tensor
from .graph import BINARY_TEXTS, Graph
from .immutable_collections import immutable_dict, immutable_list
from .node import Node, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]

CONSTANTS = (str, int, float, bool, complex, dtype, Tensor, device, memory_format, layout, range, type(None),
             type(Ellipsis))


class TraceError(ValueError):
    """Something that depends on a value which is not there while a function is traced."""


class TracerBase:
    """Makes nodes of what is done with proxies."""

    graph: Graph
    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False
    check_mutable_operations = False
    module_stack: dict

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """Add a node to the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node):
        """The Proxy of a node."""
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Add a node, and give the Proxy that stands for its result."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        made = proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)
        if self.record_stack_traces:
            made.node.stack_trace = "".join(f"  File \"{f.filename}\", line {f.lineno}, in {f.function}\n"
                                            for f in reversed(inspect.stack(0)[1:]))
        return made

    def create_arg(self, a):
        """An argument as it stands in a node: proxies become their nodes."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(part) for part in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        if isinstance(a, list):
            return immutable_list(self.create_arg(part) for part in a)
        if isinstance(a, dict):
            made = {}
            for key, part in a.items():
                key = self.create_arg(key)
                if isinstance(key, Node):
                    raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node. Got key: "
                                       f"{key}")
                made[key] = self.create_arg(part)
            return immutable_dict(made)
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, CONSTANTS) or isinstance(a, enum.Enum) or isinstance(a, type) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj):
        """Asked whether a Proxy is true, which decides what the program does next."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        """Asked for the parts of a Proxy: how many they are is known where they are unpacked (`a, b = proxy`)."""
        frame = sys._getframe(2)
        at = frame.f_lasti
        for step in dis.get_instructions(frame.f_code):
            if step.offset == at:
                if step.opname == "UNPACK_SEQUENCE":
                    return (obj[i] for i in range(step.argval))
                break
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or "
                         "as a *args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more "
                         "detailed explanation of what types of control flow can be traced, and check out the Proxy "
                         "docstring for help troubleshooting Proxy iteration errors")

    def keys(self, obj):
        """Asked for the keys of a Proxy, as `**proxy` does."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds to a graph that is there."""

    def __init__(self, graph):
        self.graph = graph
        self.module_stack = {}


class Proxy:
    """Stands for the value of a node. Operators, methods, attributes and torch functions on it become nodes."""

    def __init__(self, node, tracer=None):
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__") and name not in ("__len__",):
            raise AttributeError(f"'Proxy' object has no attribute '{name}'")
        return Attribute(self, name)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state

    def __deepcopy__(self, memo):
        made = Proxy.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        return self.tracer.iter(self)

    def __abs__(self):
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __hash__(self):
        return id(self)

    def keys(self):
        """The keys, if it is a dict."""
        return self.tracer.keys(self)

    def __len__(self):
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be "
                           "recorded, please call torch.fx.wrap('len') at module scope")

    def __contains__(self, key):
        return self.tracer.to_bool(self.tracer.create_proxy("call_function", operator.contains, (self, key), {}))

    def __setitem__(self, index, value):
        raise TypeError("'Proxy' object does not support item assignment")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        tracers = {}

        def note(a):
            if isinstance(a, Proxy):
                tracers[a.tracer] = None
        map_aggregate(args, note)
        map_aggregate(kwargs or {}, note)
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(tracers)} while trying to trace operations "
                               f"{func}")
        tracer = next(iter(tracers))
        name = getattr(func, "__name__", "")
        if getattr(Tensor, name, None) is func:
            return tracer.create_proxy("call_method", name, args, kwargs or {})
        return tracer.create_proxy("call_function", func, args, kwargs or {})


class Attribute(Proxy):
    """An attribute of a Proxy: a node if it is used as a value, a call of a method if it is called."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node = None

    @property
    def node(self):
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The Proxy of a parameter, whose shape is known."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    @property
    def shape(self):
        return self.param.shape

    def size(self):
        return self.param.size()

    def dim(self):
        return self.param.dim()

    @property
    def ndim(self):
        return self.param.ndim

    def numel(self):
        return self.param.numel()

    def nelement(self):
        return self.param.nelement()


def _operator(function):
    def form(self, *rest):
        return self.tracer.create_proxy("call_function", function, (self, *rest), {})
    return form


def _reflected(function):
    def form(self, other):
        return self.tracer.create_proxy("call_function", function, (other, self), {})
    return form


for _name in (*BINARY_TEXTS, "neg", "invert", "pos", "getitem"):
    setattr(Proxy, f"__{_name.rstrip('_')}__", _operator(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor",
              "matmul"):
    setattr(Proxy, f"__r{_name.rstrip('_')}__", _reflected(getattr(operator, _name)))
del _name

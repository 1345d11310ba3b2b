"""PyTorch's place for tracing: `symbolic_trace`, and what it is made of (tracer.py)."""
import functools  # noqa: F401  (torch_geometric's to_hetero takes this and the private names from here)

from ..nn import Module
from ._compatibility import compatibility as compatibility
from .graph_module import GraphModule
from .tracer import (  # noqa: F401
    PH,
    PHBase,
    ProxyableClassMeta,
    ScriptObject,
    Tracer,
    _autowrap_check,
    _orig_module_call,
    _orig_module_getattr,
    _patch_wrapped_functions,
    _Patcher,
    is_fx_symbolic_tracing,
    is_fx_tracing,
    wrap,
)

__all__ = ["PH", "PHBase", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "symbolic_trace",
           "wrap"]

for _cls in (PHBase, ProxyableClassMeta, Tracer):
    _cls.__module__ = __name__        # as PyTorch's, which are written there: GraphModules in files name their Tracer


def symbolic_trace(root, concrete_args=None):
    """A GraphModule that does what the module or function `root` does.

    Python runs while it is traced: loops are unrolled, and what depends on a value cannot be traced. Functions that
    must not be traced through are given to `wrap`; modules of torch.nn are calls in the graph.

    >>> net = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> print(net.graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, 1), kwargs = {})
        return add
    >>> net(torch.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


"""`torch.fx`: a Python function or module as a graph that can be read, changed, and run again.

`symbolic_trace` calls a module's `forward` with `Proxy` objects in the place of its arguments (tracer.py).
What is done with a Proxy becomes a `Node` of a `Graph` (node.py, graph.py). A `GraphModule` (graph_module.py) turns the
graph into Python source again and runs that; an `Interpreter` runs a graph node by node.

It is about Python calls, and has nothing to do with how Flambeau runs operations: for that there are `torch.plans` and
`torch.compile`.
"""
from ..compat.missing import rest_of
from . import experimental, graph, graph_module, immutable_collections, interpreter, node, proxy
from ._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect",
           "map_arg", "symbolic_trace", "wrap"]

__getattr__ = rest_of("torch.fx", passes="change the Graph itself")

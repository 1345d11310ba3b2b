"""A module whose `forward` is a graph: written as Python source, compiled, and written again when the graph changes."""
import ast
import copy
import itertools
import linecache
import pickle
from importlib import import_module
from types import ModuleType

from ..base.module_locations import exists, flambeau_name, holds, is_pytorchs, look_up, torch_module, torch_name
from ..compat.missing import MissingModule
from ..nn import Module, Parameter
from ..tensor.tensor import Tensor
from .graph import Graph
from .tracer import Tracer

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"      # torchvision's feature extraction
_count = itertools.count()


class GraphModule(Module):
    """A module made of a graph and of what it needs of `root`: a module, or a dict of attributes by their paths.

    `code` is the source of its `forward`, `graph` the graph; assigning another, or `recompile()`, writes it again.
    """

    def __new__(cls, *args, **kwargs):
        # Each has a class of its own, since `forward` belongs to the class.
        for parent in cls.__mro__:
            if "GraphModuleImpl" not in parent.__qualname__:
                cls = parent
                break
        return super().__new__(type(cls.__name__, (cls,),
                                    {"__qualname__": "GraphModule.__new__.<locals>.GraphModuleImpl",
                                                           "__module__": cls.__module__}))

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            wanted = []
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    if node.target not in root:
                        raise RuntimeError(f"Node {node} referenced target {node.target} but that target was not "
                                           "provided in ``root``!")
                    wanted.append(node.target)
            for path in sorted(wanted, key=lambda path: path.count(".")):        # a parent before its parts
                _assign_attr(root[path], self, path)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self._tracer_cls = None
        if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self.meta: dict = {}

    @property
    def graph(self):
        """The graph. Assign to it to have another written."""
        return self._graph

    @graph.setter
    def graph(self, g):
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self):
        """The source of `forward`."""
        return self._code

    def recompile(self):
        """Write and compile the source of the graph as it is now."""
        made = self._graph.python_code("self")
        self._code = made.src
        type(self).forward = compiled(made.src, made.globals)
        return made

    def add_submodule(self, target, m):
        """Put a module at a path; whether that could be done."""
        *path, name = target.split(".")
        at = self
        for part in path:
            inner = getattr(at, part, None)
            if inner is None:
                inner = Module()
                setattr(at, part, inner)
            if not isinstance(inner, Module):
                return False
            at = inner
        at.add_module(name, m)
        return True

    def delete_submodule(self, target):
        """Take away the module at a path; whether there was one."""
        *path, name = target.split(".")
        at = self
        for part in path:
            at = getattr(at, part, None)
            if not isinstance(at, Module):
                return False
        if not isinstance(getattr(at, name, None), Module):
            return False
        delattr(at, name)
        return True

    def delete_all_unused_submodules(self):
        """Take away the modules that no node of the graph needs."""
        used = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
                if node.op == "call_module":
                    used |= {f"{node.target}.{name}" for name,
                             _ in self.get_submodule(node.target).named_modules() if name}
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output=True, **options):
        """Print the source; it is returned too."""
        text = f"class {self._get_name()}(torch.nn.Module):{self._code.rstrip().replace(chr(10), chr(10) + '    ')}\n"
        if print_output:
            print(text)
        return text

    def to_folder(self, folder, module_name="FxModule"):
        """Writing a module as a package: not here."""
        raise NotImplementedError("GraphModule.to_folder: save the module's state_dict, and its `code` as text")

    def __str__(self):
        return "\n".join([super().__repr__(), self._code, "# To see more debug info, please use "
                          "`graph_module.print_readable()`"])

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        fake = _CodeOnlyModule(copy.deepcopy(dict(self.__dict__), memo))
        self._deepcopy_init()(made, fake, fake.__dict__["_graph"])
        for name in ("_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"):
            if name in self.__dict__:
                setattr(made, name, copy.deepcopy(self.__dict__[name], memo))
        made.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        made.__class__.__name__ = type(self).__name__
        for name, value in made.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(made, name, value)
        return made

    def _deepcopy_init(self):
        return GraphModule.__init__

    def __copy__(self):
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = getattr(self, "meta", {})
        return made

    def __reduce__(self):
        state = self._state_for_files(self.__dict__)
        del state["_graph"]
        made = self.recompile()
        state.update(_code=made.src, _graphmodule_cls_name=type(self).__name__)
        imports = "\n".join(import_of(name, thing) for name, thing in made.globals.items())
        return reduce_graph_module, (state, imports)


class _CodeOnlyModule(Module):
    """The attributes of a GraphModule, without its graph's `forward`."""

    def __init__(self, body):
        super().__init__()
        self.__dict__ = body


def compiled(source, globals):
    """The function that the source of a graph defines; tracebacks show its lines."""
    name = f"<eval_with_key>.{next(_count)}"
    linecache.cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)
    namespace = dict(globals)
    exec(compile(source, name, "exec"), namespace)
    return namespace["forward"]


def import_of(name, thing):
    """The statement that gives a global of a graph's source, in PyTorch's names."""
    if isinstance(thing, ModuleType):
        return f"import {torch_name(thing.__name__)} as {name}"
    if isinstance(thing, float):
        return f"from math import {name}"
    module, path = thing.__module__, thing.__qualname__
    if not holds(module, path, thing):
        raise pickle.PicklingError(f"Can't pickle a GraphModule that calls {path} of {module}: it cannot be imported "
                                   "from there")
    module, (outer, *inner) = torch_module(thing, module, path), path.split(".")
    return f"from {module} import {outer} as {name}" + "".join(f"\n{name} = {name}.{part}" for part in inner)


def imported_by(block):
    """The globals that a block of import statements gives, where PyTorch's names mean what is here in their place."""
    namespace: dict = {}
    for line in ast.parse(block).body:
        if isinstance(line, ast.Import) and is_pytorchs(line.names[0].name):
            for alias in line.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                module_name = flambeau_name(name)
                namespace[alias.asname or name] = \
                    import_module(module_name) if exists(module_name) else MissingModule(name)
        elif isinstance(line, ast.ImportFrom) and is_pytorchs(line.module):
            for alias in line.names:
                found = look_up(line.module, alias.name)
                if found is None:
                    raise NotImplementedError(f"the graph calls {line.module}.{alias.name}, which Flambeau does not "
                                              "have")
                namespace[alias.asname or alias.name] = found
        else:
            exec(ast.unparse(line), namespace)
    return namespace


def reduce_graph_module(body, import_block):
    """A GraphModule from its pickled parts, as PyTorch's files have them: its source is traced again."""
    things = imported_by(import_block)

    class KeepModules(Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    root = _CodeOnlyModule({})
    root.__setstate__(body)
    state = root.__dict__
    type(root).forward = compiled(state.pop("_code"), things)
    graph = KeepModules(autowrap_functions=tuple(value for value in things.values() if callable(value))).trace(root)
    graph._tracer_cls = state.get("_tracer_cls") or Tracer
    made = GraphModule(root, graph, state.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in state.items():
        if name not in made.__dict__:
            made.__dict__[name] = value
    return made


def _copy_attr(from_module, to_module, target):
    """Put what `from_module` has at the path `target` at the same path of `to_module`."""
    *path, name = target.split(".")
    for part in path:
        inner, there = getattr(from_module, part), getattr(to_module, part, None)
        if there is inner:                               # a module that was put there whole
            return
        if there is None:
            there = Module()
            setattr(to_module, part, there)
        from_module, to_module = inner, there
    attribute = getattr(from_module, name)
    if isinstance(attribute, Tensor) and not isinstance(attribute, Parameter):
        to_module.register_buffer(name, attribute)
    else:
        setattr(to_module, name, attribute)


def _assign_attr(thing, to_module, target):
    """Put `thing` at the path `target` of a module."""
    *path, name = target.split(".")
    for part in path:
        inner = getattr(to_module, part, None)
        if inner is None:
            inner = Module()
            setattr(to_module, part, inner)
        to_module = inner
    if isinstance(thing, Tensor) and not isinstance(thing, Parameter):
        to_module.register_buffer(name, thing)
    else:
        setattr(to_module, name, thing)

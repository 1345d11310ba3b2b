"""A node of a graph: one call, argument or result, with the nodes it uses and those that use it."""
import builtins
import operator

from ..base.op import Op
from ..tensor.forms import function_name
from .immutable_collections import immutable_dict, immutable_list

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target = object               # a function, or the name of a method, a module or an attribute; for annotations
Argument = object
NODE_OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output", "root")
_side_effects: set = set()    # functions whose calls stay although their results are not used


def has_side_effect(fn):
    """A decorator: calls of `fn` are kept by `eliminate_dead_code`."""
    _side_effects.add(fn)
    return fn


def map_arg(a, fn):
    """The arguments `a` with `fn(node)` in the place of every node."""
    return map_aggregate(a, lambda part: fn(part) if isinstance(part, Node) else part)


def map_aggregate(a, fn):
    """The same nest of tuples, lists, dicts and slices, with `fn(part)` for every part inside."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(part, fn) for part in a)
    if isinstance(a, dict):
        return immutable_dict((name, map_aggregate(part, fn)) for name, part in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def qualified_name(function):
    """Where a function is found: `torch.relu`, `operator.add`, `mine.helper`."""
    if isinstance(function, Op):
        return function_name(function)
    if getattr(builtins, getattr(function, "__name__", ""), None) is function:
        return f"builtins.{function.__name__}"
    name = getattr(function, "__name__", None) or type(function).__name__
    module = getattr(function, "__module__", None) or "torch"
    if module == "_operator" or getattr(operator, name, None) is function:
        module = "operator"
    package = __name__.partition(".")[0]
    if module == package or module.startswith(f"{package}."):
        module = "torch"
        if getattr(function, "__qualname__", name).startswith("Tensor."):
            module = "torch.Tensor"
    return f"{module}.{name}"


class Node:
    """One step of a `Graph`. `op` says what kind:

    - "placeholder": an argument of the function, `target` its name, `args` its default;
    - "get_attr": an attribute of the module, by its path `target`;
    - "call_function", "call_method", "call_module": a call of the function, method or module `target` with `args` and
      `kwargs`;
    - "output": what the function returns, `args[0]`.
    """

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        if op not in NODE_OPS:
            raise AssertionError(f"op must be one of {', '.join(NODE_OPS)}, got {op!r}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but "
                                 "a Callable is expected")
        elif not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a "
                             "str is expected")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict = {}             # in the order in which they came
        self._input_nodes: dict = {}
        self._args, self._kwargs = (), immutable_dict()
        self._prev = self._next = self
        self._erased = False
        self._repr_fn = None
        self.meta: dict = {}
        self._set(tuple(args), dict(kwargs))

    # --- where it stands ---

    @property
    def next(self):
        """The node after this one."""
        return self._next

    @property
    def prev(self):
        """The node before this one."""
        return self._prev

    def prepend(self, x):
        """Move the node `x` to just before this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x):
        """Move the node `x` to just after this one."""
        if self._next is not x:
            self._next.prepend(x)

    def _unlink(self):
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other):
        at = self._next
        while at.op != "root":
            if at is other:
                return True
            at = at._next
        return False

    def __gt__(self, other):
        return other < self

    # --- what it uses ---

    @property
    def args(self):
        """The positional arguments. Assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, args):
        self._set(args, self._kwargs)

    @property
    def kwargs(self):
        """The arguments by name. Assign a new dict to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs):
        self._set(self._args, kwargs)

    def _set(self, args, kwargs):
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def note(node):
            self._input_nodes[node] = None
            node.users[self] = None
            return node
        self._args, self._kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)

    @property
    def all_input_nodes(self):
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx, arg):
        """Put another argument at a place."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        """Put a further argument before a place."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key, arg):
        """Put another argument under a name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input, new_input):
        """Use another node in the place of one that is used."""
        def swap(node):
            return new_input if node is old_input else node
        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Let all that use this node use another; those that did are returned."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    @property
    def stack_trace(self):
        """Where the program made it, if the tracer noted that."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace):
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random=True):
        """Whether it must stay although it is not used."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            return self.target in _side_effects or name == "_assert" or name.endswith("_") and not name.endswith("__")
        if self.op == "call_module" and self.graph.owning_module is not None:
            return getattr(self.graph.owning_module.get_submodule(self.target), "_is_impure", False)
        return False

    # --- text ---

    def __repr__(self):
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target):
        return target if isinstance(target, str) else qualified_name(target)

    def format_node(self, placeholder_names=None, maybe_return_typename=None, **options):
        """The node as a line of the printed graph."""
        typed = f"{type_text(self.type)} " if self.type else ""
        start = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{start}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{start}[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        return (f"{start}[target={self._pretty_print_target(self.target)}](args = {_text(self.args)}, "
                f"kwargs = {_text(self.kwargs)})")


def type_text(annotation):
    """An annotation as source."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__ if annotation.__module__ == "builtins" else qualified_name(annotation)
    return repr(annotation).replace("flambeau.", "torch.")


def _text(a):
    if isinstance(a, Node):
        return f"%{a}"
    if isinstance(a, list):
        return f"[{', '.join(map(_text, a))}]"
    if isinstance(a, tuple):
        return f"({', '.join(map(_text, a))}{',' if len(a) == 1 else ''})"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{name}: {_text(part)}" for name, part in a.items()) + "}"
    return str(a)

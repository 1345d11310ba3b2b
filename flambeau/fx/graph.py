"""The graph: a list of nodes, and the Python source that they stand for."""
import builtins
import contextlib
import copy
import enum
import keyword
import re
import sys
import types

from ..base.dtypes import dtype
from ..base.layout import layout, memory_format
from ..base.spec import Size, device
from .immutable_collections import immutable_dict
from .node import Node, map_arg, qualified_name, type_text

__all__ = ["CodeGen", "Graph", "PythonCode"]

NUMBERED_NAME = re.compile(r"(.*?)(?:_(\d+))?$")
BINARY_TEXTS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**",
                "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<",
                "gt": ">", "le": "<=", "ge": ">=", "matmul": "@"}
UNARY_TEXTS = {"neg": "-", "invert": "~", "pos": "+", "not_": "not "}
IN_PLACE_TEXTS = {f"i{name.rstrip('_')}": f"{sign}=" for name, sign in BINARY_TEXTS.items()
                  if name[:2] not in ("eq", "ne", "lt", "gt")}


class Namespace:
    """Names, each given once; those of Python stay Python's."""

    def __init__(self):
        self._used: set = set()
        self._of: dict = {}               # object → its name
        self._last: dict = {}             # name without a number → the last number given

    def create_name(self, candidate, obj=None):
        """A free name like `candidate`, the same one for the same object."""
        if obj is not None and obj in self._of:
            return self._of[obj]
        candidate = re.sub(r"\W+", "_", candidate) or "_unnamed"
        candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
        base, number = NUMBERED_NAME.match(candidate).groups()
        if number is None or candidate in self._used:
            number = self._last.get(base, 0)
            if keyword.iskeyword(candidate) or candidate == "torch" or candidate in vars(builtins) \
                    and vars(builtins)[candidate] is not obj:
                number += 1
                candidate = f"{base}_{number}"
        else:
            number = int(number)
        while candidate in self._used:
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last[base] = number
        if obj is not None:
            self._of[obj] = candidate
        return candidate


def snake_case(text):
    """`MyName` as `my_name`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower() if not text.isupper() else text.lower()


class PythonCode:
    """Source, and what its names stand for."""

    def __init__(self, src, globals):
        self.src, self.globals, self._lineno_map = src, globals, None


class CodeGen:
    """Writes the source of a graph. A subclass may write its arguments and its return in another way."""

    def gen_fn_def(self, free_vars, maybe_return_annotation):
        """The line that starts the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args, *, descs=None):
        """The line that ends it."""
        return f"return {text_of(output_args)}"

    def process_inputs(self, *inputs):
        """The arguments of the function as those of the graph."""
        return inputs

    def process_outputs(self, outputs):
        """The results of the graph as those of the function."""
        return outputs

    def additional_globals(self):
        """Further (name, object) pairs for the source."""
        return []


class Nodes:
    """The nodes of a graph, in order."""

    def __init__(self, graph, direction="_next"):
        self.graph, self.direction = graph, direction

    def __len__(self):
        return self.graph._len

    def __iter__(self):
        root, direction = self.graph._root, self.direction
        at = getattr(root, direction)
        while at is not root:
            if not at._erased:
                yield at
            at = getattr(at, direction)

    def __reversed__(self):
        return iter(Nodes(self.graph, "_next" if self.direction == "_prev" else "_prev"))

    def __getitem__(self, at):
        return list(self)[at]


class Graph:
    """A function as a list of nodes. Its methods add nodes where the insert point is; new graphs add at the end."""

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._len = 0
        self._names = Namespace()
        self._insert = self._root.prepend
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def nodes(self):
        """All nodes in order; `reversed` works too."""
        return Nodes(self)

    @property
    def _graph_namespace(self):
        return self._names

    def output_node(self):
        """The node of what is returned."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(self, *, op, target=None, sort=True):
        """The nodes of a kind, and of a target if one is given."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # --- adding ---

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """Add a node where the insert point is."""
        args, kwargs = args if args is not None else (), kwargs if kwargs is not None else {}
        if not isinstance(args, tuple):
            raise AssertionError("args must be a tuple")
        if not isinstance(kwargs, dict):
            raise AssertionError("kwargs must be a dict")
        name = self._names.create_name(name if name is not None else self._target_to_str(target))
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target):
        if not isinstance(target, str):
            target = getattr(target, "__name__", None) or type(target).__name__
        return snake_case(target.strip("_") if target.startswith("__") and target.endswith("__") else target)

    def placeholder(self, name, type_expr=None, default_value=None, **given):
        """Add an argument of the function."""
        has_default = default_value is not None or "has_default" in given
        return self.create_node("placeholder", name, (default_value,) if has_default else (), type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        """Add an attribute of the module, by its path."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a submodule, by its path."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a method of `args[0]`."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result, type_expr=None):
        """Add what the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node, arg_transform=lambda node: node):
        """Add a copy of a node of another graph; `arg_transform` says which node stands for each that it uses."""
        made = self.create_node(node.op, node.target, map_arg(node.args, arg_transform),
                                map_arg(node.kwargs, arg_transform), node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g, val_map, return_output_node=False):
        """Add copies of all nodes of `g`; what it returns, in the nodes of this graph, is returned."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # --- changing ---

    def inserting_before(self, n=None):
        """Set the insert point before a node (none: at the start), for the time of a `with` if there is one."""
        return self._inserting((n if n is not None else self._root._next).prepend)

    def inserting_after(self, n=None):
        """Set the insert point after a node (none: at the end), for the time of a `with` if there is one."""
        if n is None:
            return self._inserting(self._root.prepend)
        following = n._next
        return self._inserting(following.prepend)

    def _inserting(self, where):
        before, self._insert = self._insert, where

        @contextlib.contextmanager
        def scope():
            try:
                yield
            finally:
                self._insert = before
        return scope()

    def erase_node(self, to_erase):
        """Take away a node that is not used."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the "
                               f"graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node=None):
        """Take away all nodes whose results are not used; whether there were any."""
        before = self._len
        for node in list(reversed(self.nodes)):
            if not (is_impure_node(node) if is_impure_node else node.is_impure()) and not node.users:
                self.erase_node(node)
        return self._len != before

    def lint(self):
        """Refuse a graph that is not well formed: a use before its definition, a name twice, a path to nothing."""
        seen, names = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used not in seen:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                                       "Please check that Nodes in the graph are topologically ordered")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                at = self.owning_module
                for part in node.target.split("."):
                    if not hasattr(at, part):
                        raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part} "
                                           f"of {self.owning_module._get_name()}")
                    at = getattr(at, part)

    # --- as source ---

    def set_codegen(self, codegen):
        """Write the source with another CodeGen."""
        self._codegen = codegen

    def process_inputs(self, *args):
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out):
        return self._codegen.process_outputs(out)

    def python_code(self, root_module, *, verbose=False, **options):
        """The source of the graph as a function, with what its global names stand for."""
        return CodeWriter(self, root_module).written()

    def print_tabular(self):
        """Print the nodes as a table; needs the package tabulate."""
        try:
            from tabulate import tabulate
        except ImportError:
            print("`print_tabular` relies on the library `tabulate`, which could not be found on this machine. Run "
                  "`pip install tabulate` to install the library.")
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def __str__(self):
        return "graph():\n" + "\n".join(f"    {node.format_node()}" for node in self.nodes)

    def __deepcopy__(self, memo=None):
        made = Graph(tracer_cls=self._tracer_cls)
        found = made.graph_copy(self, {}, True)
        if found is not None:
            made.output(found[0], found[1].type).meta = copy.copy(found[1].meta)
        made._codegen = copy.deepcopy(self._codegen)
        return made


class CodeWriter:
    """Writes a graph as Python source."""

    def __init__(self, graph, root):
        self.graph, self.root = graph, root
        self.names, self.globals = Namespace(), {}
        for name in ("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"):
            self.names._used.add(name)
        for node in graph.nodes:
            self.names._used.add(node.name)

    def name_for(self, hint, thing):
        """A global name for a function or a type; for what is in `torch`, its path there."""
        torch = sys.modules[__name__.partition(".")[0]]
        if hint.startswith("torch."):
            at = torch
            for part in hint.split(".")[1:]:
                at = getattr(at, part, None)
            if at is thing:
                self.globals["torch"] = torch
                return hint
        if hint.startswith("builtins.") and vars(builtins).get(hint[9:]) is thing:
            return hint[9:]
        name = self.names.create_name(hint.replace(".", "_"), thing) if hasattr(type(thing), "__hash__") \
            and type(thing).__hash__ is not None else self.names.create_name(hint.replace(".", "_"))
        self.globals[name] = thing
        return name

    def written(self):
        lines, free, returned = [], [], ""
        last_use = {}                     # node → those that are not needed after it
        seen = set()
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    last_use.setdefault(node, []).append(used)
        for node in self.graph.nodes:
            if node.op == "output" and node.type is not None:
                returned = f" -> {self.annotation(node.type)}"
            line = self.line(node, free)
            if line is not None:
                if node.op not in ("placeholder", "output"):
                    done = [*last_use.get(node, []), *(() if node.users else (node,))]
                    if done:                             # so that their memory can be used again
                        line += ";  " + " = ".join([*map(repr, done), "None"])
                lines.append(line)
        if not lines:
            lines.append("pass")
        for name, thing in self.graph._codegen.additional_globals():
            self.globals[name] = thing
        start = self.graph._codegen.gen_fn_def(free, returned)
        body = "\n".join(f"    {line}" for line in lines)
        return PythonCode(f"\n\n\n{start}\n{body}\n    ", self.globals)

    def annotation(self, hint):
        text = type_text(hint)
        if isinstance(hint, type) and hint.__module__ != "builtins":
            return self.name_for(text, hint)
        if isinstance(hint, type) or isinstance(hint, str):
            return text
        return self.name_for("annotation", hint)

    def line(self, node, free):
        """The line of one node; None for an argument, whose text goes to `free`."""
        typed = f" : {self.annotation(node.type)}" if node.type is not None else ""
        args, kwargs, name = node.args, node.kwargs, repr(node)
        if node.op == "placeholder":
            default = f" = {self.value(args[0])}" if args else ""
            free.append(f"{node.target}{typed}{default}")
            raw = node.target.replace("*", "")
            return f"{name} = {raw}" if raw != name else None
        if node.op == "get_attr":
            return f"{name}{typed} = {path_text('self', node.target)}"
        if node.op == "output":
            return self.graph._codegen.generate_output(self.value_tree(args[0]))
        if node.op == "call_module":
            return f"{name}{typed} = {path_text('self', node.target)}({self.arguments(args, kwargs)})"
        if node.op == "call_method":
            return f"{name}{typed} = {path_text(self.value(args[0]), node.target)}({self.arguments(args[1:], kwargs)})"
        function = node.target
        hint = qualified_name(function)
        short = getattr(function, "__name__", "") if hint.startswith("operator.") else ""
        if short in BINARY_TEXTS and len(args) == 2 and not kwargs:
            return f"{name}{typed} = {self.value(args[0])} {BINARY_TEXTS[short]} {self.value(args[1])}"
        if short in UNARY_TEXTS and len(args) == 1 and not kwargs:
            return f"{name}{typed} = {UNARY_TEXTS[short]}{self.value(args[0])}"
        if short in IN_PLACE_TEXTS and len(args) == 2 and not kwargs:
            left = self.value(args[0])
            return f"{left} {IN_PLACE_TEXTS[short]} {self.value(args[1])};  {name}{typed} = {left}"
        if short == "getitem" and len(args) == 2 and isinstance(args[0], Node):
            return f"{name}{typed} = {self.value(args[0])}[{self.value(args[1])}]"
        if function is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            return f"{name}{typed} = {path_text(self.value(args[0]), args[1])}"
        return f"{name}{typed} = {self.name_for(hint, function)}({self.arguments(args, kwargs)})"

    def arguments(self, args, kwargs):
        return ", ".join([*map(self.value, args), *(f"{name} = {self.value(a)}" for name, a in kwargs.items())])

    def value(self, a):
        """An argument as source."""
        return text_of(self.value_tree(a))

    def value_tree(self, a):
        """An argument with what has no source of its own bound to a global name."""
        if isinstance(a, Node):
            return SourceText(repr(a))
        if isinstance(a, Size):
            self.globals["torch"] = sys.modules[__name__.partition(".")[0]]
            return SourceText(f"torch.Size([{', '.join(map(str, a))}])")
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            parts = ", ".join(self.value(part) for part in a)
            return SourceText(f"{self.name_for(qualified_name(type(a)), type(a))}({parts})")
        if isinstance(a, (tuple, list)):
            return type(a)(self.value_tree(part) for part in a) if type(a) in (tuple, list) else \
                [self.value_tree(part) for part in a]
        if isinstance(a, dict):
            return {name: self.value_tree(part) for name, part in a.items()} if type(a) in (dict, immutable_dict) else \
                SourceText(f"{self.name_for(qualified_name(type(a)), type(a))}"
                           f"([{', '.join(f'({k!r}, {self.value(v)})' for k, v in a.items())}])")
        if isinstance(a, slice):
            return SourceText(f"slice({self.value(a.start)}, {self.value(a.stop)}, {self.value(a.step)})")
        if a is Ellipsis or a is None or isinstance(a, (bool, int, str)) and not isinstance(a, enum.Enum):
            return a
        if isinstance(a, (float, complex)):
            if a != a or a in (float("inf"), float("-inf")):
                self.globals.update(inf=float("inf"), nan=float("nan"))
            return a
        if isinstance(a, (dtype, layout, memory_format)):
            self.globals["torch"] = sys.modules[__name__.partition(".")[0]]
            return SourceText(str(a))
        if isinstance(a, device):
            self.globals["device"] = device
            return SourceText(repr(a))
        if isinstance(a, enum.Enum):
            return SourceText(f"{self.name_for(qualified_name(type(a)), type(a))}.{a.name}")
        if isinstance(a, types.FunctionType | types.BuiltinFunctionType | type):
            return SourceText(self.name_for(qualified_name(a), a))
        return SourceText(self.name_for(f"constant_{type(a).__name__}", a))


class SourceText(str):
    """Source that stands as it is."""

    def __repr__(self):
        return str(self)


def text_of(a):
    """A value of `value_tree` as source."""
    return repr(a)


def path_text(start, path):
    """The source of an attribute by its path; parts that are no identifiers through `getattr`."""
    for part in path.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        start = f"{start}.{part}" if plain else f'getattr({start}, "{part}")'
    return start

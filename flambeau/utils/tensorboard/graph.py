"""A module as the graph that TensorBoard shows: operations as nodes, in boxes of the modules that called them.

The module is called once, in evaluation, without gradients. Every call of an operation is seen by a function mode;
which module it belongs to, hooks on the modules know.
"""
import contextlib

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.step_stats_pb2 import DeviceStepStats, StepStats
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ...autograd.modes import no_grad
from ...base.pytree import tree_flatten
from ...tensor import function_modes
from ...tensor.tensor import Tensor

PRODUCER = 22                      # the version that TensorBoard expects of the producer of a graph


def graph(model, input_to_model, verbose=False):
    """(GraphDef, RunMetadata) of what `model` does with its input, a tensor or several in a tuple or list."""
    given = tuple(input_to_model) if isinstance(input_to_model, (tuple, list)) else (input_to_model,)
    scopes, nodes = Scopes(model), CalledNodes()
    for number, one in enumerate(tensors_in(given)):
        nodes.name(one, nodes.add(f"input/input.{number + 1}", "IO Node", [], one))
    for name, one in [*model.named_parameters(), *model.named_buffers()]:
        owner, _, last = name.rpartition(".")
        nodes.parameters[id(one)] = f"{scopes.names[owner]}/{last}"
    mode = SeenCalls(nodes, scopes)
    training = [module for module in model.modules() if module.training]
    with contextlib.ExitStack() as undo:
        for module in training:
            undo.callback(setattr, module, "training", True)
            module.training = False
        undo.enter_context(scopes.watched())
        undo.enter_context(no_grad())
        undo.enter_context(mode)
        made = model(*given)
    for number, one in enumerate(tensors_in(made)):
        nodes.add(f"output/output.{number + 1}", "IO Node", [nodes.of(one)], one)
    if verbose:
        print("\n".join(f"{node.name} = {node.op}({', '.join(node.input)})" for node in nodes.made))
    stats = RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))
    return GraphDef(node=nodes.made, versions=VersionDef(producer=PRODUCER)), stats


def tensors_in(thing):
    """The tensors in nested lists, tuples and dictionaries."""
    return [one for one in tree_flatten(thing)[0] if isinstance(one, Tensor)]


class Scopes:
    """What the modules are called, and in which of them the program is: `Net/Linear[first]`."""

    def __init__(self, model):
        self.model, self.names, self.stack = model, {}, []
        top = type(model).__name__
        for path, module in model.named_modules():
            parent, _, last = path.rpartition(".")
            self.names[path] = f"{self.names[parent]}/{type(module).__name__}[{last}]" if path else top

    @property
    def current(self):
        """The innermost module that is being called."""
        return self.stack[-1] if self.stack else self.names[""]

    @contextlib.contextmanager
    def watched(self):
        """Hooks on all modules, for the duration."""
        with contextlib.ExitStack() as undo:
            for path, module in self.model.named_modules():
                name = self.names[path]
                undo.callback(module.register_forward_pre_hook(
                    lambda module, args, name=name: self.stack.append(name)).remove)
                undo.callback(module.register_forward_hook(lambda *_: self.stack.pop() and None,
                                                           always_call=True).remove)
            yield


class CalledNodes:
    """The nodes of the graph, and which of them made a tensor."""

    def __init__(self):
        self.made, self.parameters, self._names, self._kept, self._counts = [], {}, {}, [], {}

    def add(self, name, op, inputs, shown):
        """A node; the name that it has got."""
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in shown.shape])
        self.made.append(NodeDef(name=name, op=op, input=inputs, attr={
            "_output_shapes": AttrValue(list=AttrValue.ListValue(shape=[shape])),
            "attr": AttrValue(s=f"{str(shown.dtype)} on {shown.device}".encode())}))
        return name

    def name(self, tensor, name):
        """Note which node made a tensor, which is kept: another would have its identity otherwise."""
        self._kept.append(tensor)
        self._names[id(tensor)] = name

    def of(self, tensor):
        """The node that made a tensor; one of its own for a parameter, and for what comes from nowhere."""
        if id(tensor) not in self._names:
            known = self.parameters.get(id(tensor))
            self.name(tensor, self.add(known or self.unique("constant"), "Parameter" if known else "Constant", [],
                                       tensor))
        return self._names[id(tensor)]

    def unique(self, name):
        """`name`, with a number from the second time on."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"


class SeenCalls:
    """The function mode: every call of an operation becomes a node."""

    def __init__(self, nodes, scopes):
        self.nodes, self.scopes = nodes, scopes

    def __enter__(self):
        function_modes.push(self)
        return self

    def __exit__(self, *exc):
        function_modes.pop()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        outs = tensors_in(made)
        word = getattr(func, "__name__", str(func))
        if outs and not word.startswith("__get"):
            inputs = [self.nodes.of(one) for one in tensors_in((args, kwargs))]
            name = self.nodes.add(self.nodes.unique(f"{self.scopes.current}/{word.strip('_')}"),
                                  f"aten::{word.strip('_')}", inputs, outs[0])
            for one in outs:
                self.nodes.name(one, name)
        return made

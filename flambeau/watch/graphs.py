"""What a full watch finds about graphs: recorded and never gone through, gradients of data that are never read.

A call of a module (the outermost, from a line of the program) that records a graph is remembered weakly. If a backward
comes to it the line is fine for good. If results of a line die, call after call, and no backward came to any, nothing
uses what is recorded there. Modules are looked at only while a program looks at results and no backward comes: a loop
that trains pays nothing for it.
"""
import ast
import collections
import linecache
import threading
import weakref

from ..autograd.base_node import AccumulateGrad
from ..autograd.modes import modes
from ..base.errors import file_and_line, here
from ..base.observers import Observer
from ..nn import Parameter
from ..nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..tensor.tensor import Tensor
from .finding import found
from .holders import kept_bytes, nodes_behind
from .step_hooks import records
from .steps import is_recording, own_looks

LOOKS_WITHOUT_BACKWARD = 4    # after so many, calls of modules are looked at
UNUSED_CALLS = 3              # so many results of a line that died without a backward
PASSES_KEPT = 16
UNREAD_STEPS = 3              # so many steps with gradients of data that were not read
# Methods that are named in a statement of their own only by mistake.
METHODS_TO_CALL = frozenset(("zero_grad", "backward", "step", "eval", "train", "cuda", "cpu", "double", "half",
                             "requires_grad_", "detach_", "zero_", "synchronize", "empty_cache"))


class _Depth(threading.local):
    modules = ()              # those whose forward is running, outermost first


_told: list = []              # who hears of modules; no attribute of a hook, which `compile` would look into


def _enter(module, args):
    for graphs in _told:
        graphs.enter(module)


def _leave(module, args, output):
    for graphs in _told:
        graphs.leave(module, output)


class UnusedGraphs(Observer):
    """Looks at calls of modules, and at what backward passes come to."""

    def __init__(self):
        self.running = _Depth()
        self.pending = collections.defaultdict(list)      # site → weak references to nodes of its results
        self.died = collections.Counter()                 # site → how many died unused
        self.used = set()                                 # sites that a backward came to
        self.passes = []                                  # of the backwards since the last step: (ids of their leaves,
        #                                                   [(weak reference, site) of those that are no Parameter])
        self.unread = collections.Counter()               # site of such a leaf → steps with a gradient of it
        self.read_at = set()                              # sites of leaves of which one was read
        self.known = set()                                # numbers of optimizers whose parameters were looked at
        self.scanned = set()
        self.looks = 0                                    # since the last backward
        self.hooks = ()

    def close(self):
        """No longer look at modules."""
        hooks, self.hooks = self.hooks, ()
        for hook in hooks:
            hook.remove()

    def looked(self, value):
        """A result is looked at."""
        if own_looks[0] or value.trace is None:           # there already: by a replay, perhaps, which tells no backward
            return
        self.looks += 1
        if self.looks > LOOKS_WITHOUT_BACKWARD and not self.hooks and not is_recording():
            _told[:] = [self]
            self.hooks = register_module_forward_pre_hook(_enter), \
                register_module_forward_hook(_leave, always_call=True)

    # --- graphs that are not used ------------------------------------------------------------------------------------

    def enter(self, module):
        """The forward of a module begins."""
        self.running.modules = (*self.running.modules, module)

    def leave(self, module, output):
        """The forward of a module is over."""
        stack = self.running.modules
        at = next((i for i in range(len(stack) - 1, -1, -1) if stack[i] is module), None)
        if at is None:
            return
        self.running.modules = stack[:at]                 # an error may have left others behind
        if at == 0 and modes.grad and modes.backward_pass is None:
            self._called(module, output)

    def _called(self, module, output):
        result = next((t for t in (output if isinstance(output, (tuple, list)) else (output,))
                       if isinstance(t, Tensor) and t._node is not None), None)
        site = here()
        if result is None or site is None:
            return
        self.scan(site)
        if site in self.used:
            return
        waiting = self.pending[site]
        alive = [node for node in waiting if node() is not None]
        self.died[site] += len(waiting) - len(alive)
        self.pending[site] = [*alive[-16:], weakref.ref(result._node)]
        if self.died[site] >= UNUSED_CALLS:
            self.used.add(site)
            nodes = nodes_behind([result])
            how = "in evaluation mode" if not module.training else "that is in training mode"
            found("unused-graph", f"{self.died[site]} results of a {type(module).__name__} {how} were dropped, each "
                  "with the graph that was recorded for it, and no backward came to them", site, (),
                  f"{len(nodes):,} nodes and {kept_bytes(nodes):,} bytes that they keep, in every call",
                  "with torch.no_grad(): around it (or torch.inference_mode())"
                  + ("" if not module.training else ", and model.eval() before, which dropout and batch norm need"))

    def backward_began(self, backward_pass):
        """Note which results it came to."""
        reached, self.looks = backward_pass.reached, 0
        if self.hooks and not self.running.modules and not is_recording():
            self.close()
        if self.pending:
            self._note_used(reached)
        if backward_pass.whole:
            leaves = [node.variable for node in reached if node.__class__ is AccumulateGrad]
            data = [leaf for leaf in leaves if not _is_parameter(leaf)]
            if data:
                self.passes.append(({id(leaf) for leaf in leaves}, [(weakref.ref(leaf), leaf._site) for leaf in data]))
                del self.passes[:-PASSES_KEPT]

    def _note_used(self, reached):
        for site, waiting in list(self.pending.items()):
            if any(node() in reached for node in waiting):
                self.used.add(site)
                del self.pending[site]
                self.died.pop(site, None)

    # --- gradients that are not read ---------------------------------------------------------------------------------

    def gradient_read(self, tensor):
        """A gradient is read."""
        if not _is_parameter(tensor) and tensor._requires_grad:
            self.read_at.add(tensor._site)

    def step_began(self, optimizer):
        """Count the data whose gradient was computed together with those that this step takes."""
        passes, self.passes = self.passes, []
        if optimizer._watched not in self.known:
            self.known.add(optimizer._watched)
            self.read_at.update(p._site for group in optimizer.param_groups for p in group["params"]
                                if not _is_parameter(p))
        if not passes:
            return
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        sites = {site for leaves, data in passes if not own.isdisjoint(leaves) for leaf, site in data
                 if leaf() is None or id(leaf()) not in own}
        for site in sites:
            self.unread[site] += 1
            if self.unread[site] > UNREAD_STEPS and site not in self.read_at:
                found("input-requires-grad", "data that is made here requires grad, is no parameter of an optimizer, "
                      "and nobody has read its gradient", site, [("step() was called at", here())],
                      "its gradient is computed in every backward, and adds up",
                      "leave out requires_grad=True: the parameters of a module have it by themselves")

    def step_ended(self, optimizer):
        """Look through the file."""
        if records[optimizer._watched].looks:
            self.scan(here())

    # --- methods that are not called ---------------------------------------------------------------------------------

    def scan(self, site):
        """Look once through a file of the program for methods that are named, in a statement, and not called."""
        file, _ = file_and_line(site)
        if not file or file in self.scanned:
            return
        self.scanned.add(file)
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) \
                    and node.value.attr in METHODS_TO_CALL:
                words = ast.unparse(node.value)
                found("not-called", f"{words} is named and not called, which does nothing",
                      (_Line(file, node.lineno), 0), (), "what it should do is not done", f"write {words}()")


def _is_parameter(tensor):
    """What `isinstance` says of Parameter; without its Python, which a recording of `compile` would have to follow."""
    return Parameter in tensor.__class__.__mro__ or getattr(tensor, "_is_param", False)


class _Line:
    """A line of a file where no code object is at hand, as a site's code."""

    def __init__(self, file, line):
        self.co_filename, self.co_firstlineno = file, line

    def co_lines(self):
        return ()

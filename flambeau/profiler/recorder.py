"""The observer behind the profiler. While the program runs it notes what it is told, and works nothing out.

What belongs together is found afterwards, by time: all that a thread did lies in spans inside of each other, so an
instruction was recorded by the innermost call around that moment, in the innermost module, in a backward or not.
"""
import sys
import threading
from collections import defaultdict
from math import prod

from ..backends import devices
from ..base.errors import PACKAGE, here, line_of
from ..base.locks import in_child
from ..base.observers import Observer, clock, observing
from ..base.spec import CPU, as_device
from ..compat._library.called import called_name
from ..tensor import out_of_memory
from ..tensor.tensor import Tensor
from .building import built
from .model import Span
from .modules import ModulePaths

_ident = threading.get_ident
current: list = []            # the Recorders that are at work, for `record_function`


class TimeRecorder(Observer):
    """Notes what happens between `start` and `stop`, which gives a Profile.

    `shapes`: of the arguments of calls; `stacks`: the program's frames around each. An observer is told of what it has
    methods for, so there are classes for what else may be noted.
    """

    def __init__(self, shapes=False, stacks=False):
        self.shapes, self.stacks = shapes, stacks
        self.began = 0
        self.thread = _ident()
        self.threads = {self.thread: threading.current_thread().name}
        self.clear()

    def clear(self):
        """Forget what was noted."""
        self.calls, self.instructions, self.ran_steps, self.spans = [], [], [], []
        self.memory, self.node_times, self.open = [], {}, defaultdict(list)
        self.roles: dict = {}             # id of an Allocation → what it is for
        self.began = clock()

    # --- beginning and end ------------------------------------------------------------------------------------------

    def start(self):
        """Begin to observe."""
        self._paths = ModulePaths()
        self._observing = observing(self)
        self._observing.__enter__()
        current.append(self)
        self.clear()
        return self

    def stop(self):
        """End it; the Profile."""
        end = clock()
        current.remove(self)
        self._observing.__exit__(None, None, None)
        return self.profile(end)

    def look_away(self):
        """Observe nothing, until `look_again`: that time is the program's own."""
        self._observing.__exit__(None, None, None)

    def look_again(self):
        """Observe once more."""
        self._observing = observing(self)
        self._observing.__enter__()

    # --- what happens -----------------------------------------------------------------------------------------------

    def called(self, name, args, kwargs, made, start, end):
        name = called_name(name, args)
        if name is not None:
            self.calls.append((name, start, end, _ident(), here(), _shapes(args) if self.shapes else None,
                               _stack() if self.stacks else (), _flops(name, args, made)))

    def recorded(self, instruction):
        self.instructions.append((instruction, clock(), _ident()))

    def ran(self, run):
        self.ran_steps.append((run, _ident()))

    def run_ended(self, start, end):
        thread = _ident()
        self.spans.append(Span("run", "flambeau::run", start, end, thread, line=line_of(here())))
        self.spans.append(Span("observing", "flambeau::observe", end, clock(), thread))

    def planned(self, planning):
        self.spans.append(Span("planning", "flambeau::plan", planning.start, planning.end, _ident()))

    def compiled(self, start, end):
        self._note_thread()
        self.spans.append(Span("compiling", "flambeau::compile", start, end, _ident()))

    def copied(self, origin, target, nbytes, start, end):
        self.spans.append(Span("copying", f"Memcpy {_short(origin)}to{_short(target)}", start, end, _ident(),
                               nbytes=nbytes, line=line_of(here()), device=str(origin)))

    def waited(self, what, start, end):
        self.spans.append(Span("waiting", f"flambeau::wait for {what}", start, end, _ident(), line=line_of(here())))

    def node_made(self, node):
        self.node_times[node.seq] = clock(), _ident()

    def node_ran(self, node, start, end):
        name = node.name()
        name = "torch::autograd::AccumulateGrad" if name == "AccumulateGrad" else name
        order, thread = getattr(node, "seq", -1), _ident()
        line = line_of(node.site) if node.site is not None else None
        for title in (f"autograd::engine::evaluate_function: {name}", name):
            self.spans.append(Span("node", title, start, end, thread, line=line, order=order, backward=True))

    def backward_began(self, backward_pass):
        self.enter("backward", "flambeau::backward")

    def backward_ended(self, backward_pass):
        self.close("backward", "flambeau::backward")

    def step_began(self, optimizer):
        self.enter("optimizer", _step_name(optimizer))

    def step_ended(self, optimizer):
        self.close("optimizer", _step_name(optimizer))

    # --- what the program says of itself ----------------------------------------------------------------------------

    def close(self, kind, name):
        """The innermost of this thread's open spans of that kind and name is over, and so are those inside of it."""
        thread, end = _ident(), clock()
        open_spans = self.open[thread]
        at = next((i for i in range(len(open_spans) - 1, -1, -1) if open_spans[i][:2] == (kind, name)), None)
        if at is None:                             # it began before recording began
            return
        for kind_, name_, start, module, site in open_spans[at:][::-1]:
            self.spans.append(Span(kind_, name_, start, end, thread, line=line_of(site), module=module))
        del open_spans[at:]

    def enter(self, kind, name, module=None):
        """A span of this thread begins, to be ended by `close`."""
        self._note_thread()
        self.open[_ident()].append((kind, name, clock(), module, here()))

    def _note_thread(self):
        self.threads.setdefault(_ident(), threading.current_thread().name)

    # --- afterwards -------------------------------------------------------------------------------------------------

    def profile(self, end):
        """The Profile of what was noted until `end`."""
        return built(self, end)


class ModuleRecorder(TimeRecorder):
    """A TimeRecorder that notes which modules run, too."""

    def module_began(self, module):
        path, title = self._paths.of(module)
        self.enter("module", title, path)

    def module_ended(self, module):
        self.close("module", self._paths.of(module)[1])


class TimeAndMemoryRecorder(TimeRecorder):
    """A TimeRecorder that notes allocations, too."""

    def clear(self):
        super().clear()
        self.before = {str(device): _by_role(device)[0] for device in _devices()}

    def profile(self, end):
        blocks = {device: _by_role(device)[1] for device in _devices()}
        freed = {id(allocation) for _, allocation, way, _ in self.memory if way < 0}
        self.roles = {id(allocation): blocks.get(allocation.device, {}).get(allocation.address, "other")
                      for _, allocation, way, _ in self.memory if way > 0 and id(allocation) not in freed}
        made = super().profile(end)
        made.memory_before = self.before
        return made

    def allocated(self, allocation):
        self.memory.append((allocation.time, allocation, 1, _ident()))

    def freed(self, allocation):
        self.memory.append((allocation.end, allocation, -1, _ident()))


class ModuleAndMemoryRecorder(ModuleRecorder, TimeAndMemoryRecorder):
    """A recorder of all of it."""


@in_child
def _after_fork():
    """What a child does, as a loader's worker, is no part of the profile."""
    for one in current:
        one.look_away()
    current.clear()


def _devices():
    """The CPU, and of all other types that are there the current device."""
    return [CPU, *map(as_device, filter(devices.available, devices.accelerators))]


def _by_role(device):
    """({role: bytes in use}, {address of a block: role}) of what tensors hold of the device's allocator."""
    found, blocks = dict.fromkeys(out_of_memory.ROLES, 0), {}
    for value, role in out_of_memory.roles(device):
        block = device.backend.block_of(value.array)
        if block is not None and block[0] not in blocks:
            blocks[block[0]] = role
            found[role] += block[1]
    return found, blocks


def _step_name(optimizer):
    return f"Optimizer.step#{type(optimizer).__name__}.step"


def _short(device):
    """What PyTorch's profiler calls a device in the name of a copy."""
    return "H" if device is CPU else "D"


def _shapes(args):
    """(shapes, dtypes) of the arguments, as PyTorch's profiler has them: [] for what is no tensor."""
    return ([list(a._spec.shape) if isinstance(a, Tensor) else [] for a in args],
            [a._spec.dtype.cname.lower() if isinstance(a, Tensor) else "Scalar" if isinstance(a, (int, float)) else ""
             for a in args])


def _stack():
    """The program's frames, the innermost first: `train.py(12): step`."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(found)


def _flops(name, args, made):
    """Operations of a call, of the kinds that PyTorch's profiler counts and by its formulas."""
    if name not in COUNTED or not isinstance(made, Tensor):
        return 0
    shapes = [a._spec.shape for a in args if isinstance(a, Tensor)]
    numel = made._spec.numel
    if name in ("aten::mm", "aten::bmm"):
        return 2 * numel * shapes[0][-1]
    if name in ("aten::addmm", "aten::baddbmm"):
        return 2 * numel * shapes[1][-1]
    if name == "aten::conv2d":
        return 2 * numel * prod(shapes[1][1:])
    return numel


COUNTED = frozenset(("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::conv2d", "aten::add", "aten::mul"))

"""What a report collects while the program runs.

Of the whole run little is noted: the loss that each backward began at, when each optimizer step ended, how many samples
the outermost module was given. Everything that costs time is seen for a few steps only: the profiler, memory by line
and the graph. A program without optimizer steps is profiled from its beginning until it ends, or has run for a while.
"""
import atexit
import contextlib
import os
import time

from ..base.observers import Observer, clock, observing
from ..lens import graph, naming
from ..memory import record
from ..nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..optim import optimizer
from ..profiler import profile
from ..tensor.tensor import Tensor
from ..watch import findings
from .data import gathered
from .page import page

LOSSES_AT_ONCE = 64                # of which the numbers are read together
SETTLING_STEPS = 2                 # between the beginning of the account of memory, which compiles, and the profile
MOST_SECONDS = 30.0                # that a profile from the beginning lasts


class RunReport(Observer):
    """A report that is being recorded. `close()` writes it; so does leaving the `with`, and the end of Python."""

    def __init__(self, path, *, title=None, warmup=2, steps=5):
        self.path = os.fspath(path)
        if not self.path.endswith((".html", ".htm")):
            raise ValueError(f"report({self.path!r}): the page is HTML, so the name ends with .html")
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"report({self.path!r}): there is no folder {folder}; make it first")
        for name, number in (("warmup", warmup), ("steps", steps)):
            least = int(name == "steps")
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise ValueError(f"report({name}={number!r}): a number of optimizer steps, at least {least}")
        self.title, self.warmup, self.sampled_steps = title, warmup, steps
        self.losses, self.ends, self.logged = [], [], []          # (step, time, loss); (time, samples); (time, {})
        self.profile = self.memory = self.picture = self.error = None
        self.sampled = (0, 0)                                     # from which optimizer step on, and how many
        self._unread, self._model, self._depth, self._samples = [], None, 0, 0
        self._state = "new"

    # --- beginning and end ------------------------------------------------------------------------------------------

    def start(self):
        """Begin to record."""
        if self._state != "new":
            raise RuntimeError(f"report({self.path!r}) was started before; make another one")
        self._state, self._process = "recording", os.getpid()
        self.began, self.when, self._undo = clock(), time.time(), contextlib.ExitStack()
        self.found_before = findings()
        self._undo.enter_context(observing(self))
        for handle in (register_module_forward_pre_hook(self._module_began),
                       register_module_forward_hook(self._module_ended, always_call=True),
                       optimizer.register_optimizer_step_post_hook(self._stepped)):
            self._undo.callback(handle.remove)
        self._sample()
        atexit.register(self.close)
        return self

    def __enter__(self):
        return self

    def __exit__(self, cls, error, traceback):
        self.close(error)

    def close(self, error=None):
        """End the recording and write the page; `error` is what ended the program. The path."""
        if self._state != "recording" or os.getpid() != self._process:       # a forked child ends: it has no page
            return self.path
        self._state = "closed"
        atexit.unregister(self.close)
        self._stop_sampling()
        self._undo.close()
        self._read_losses()
        self.ended = clock()
        if self.profile is not None:
            self._last_profiler.measure_limits()
        self.error = error if isinstance(error, Exception) else None
        text = page(gathered(self))
        beside = f"{self.path}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, self.path)
        return self.path

    def log(self, **numbers):
        """Numbers of the program's own, to be shown as curves: `run.log(accuracy=0.9)`."""
        made = {}
        for name, given in numbers.items():
            number = given.item() if isinstance(given, Tensor) else given
            if not isinstance(number, (int, float)):
                raise TypeError(f"log({name}=…) takes a number, or a tensor of one, not {type(given).__name__}")
            made[name] = float(number)
        self.logged.append((clock(), made))

    # --- of the whole run -------------------------------------------------------------------------------------------

    def backward_called(self, tensors):
        found = [one for one in tensors if one.numel() == 1]
        if found:
            self._unread.append((len(self.ends), clock(), found[0].detach()))
            if len(self._unread) >= LOSSES_AT_ONCE:
                self._read_losses(keep=1)                         # the last is not computed yet
        if self.picture is None and self.sampling and tensors and (self._naming or not self._model):
            self.picture = graph(tensors[0], self._model)

    def _read_losses(self, keep=0):
        read, self._unread = self._unread[:len(self._unread) - keep], self._unread[len(self._unread) - keep:]
        self.losses += [(step, when, loss.item()) for step, when, loss in read]

    def _module_began(self, module, args):
        if self._depth == 0:
            self._model = module
            self._samples += next((one.shape[0] for one in args if isinstance(one, Tensor) and one.dim()), 0)
        self._depth += 1

    def _module_ended(self, module, args, output):
        self._depth = max(self._depth - 1, 0)
        if self.sampling and not self.ends and clock() - self.began > MOST_SECONDS * 1e9:
            self._stop_sampling()

    def _stepped(self, optimizer, args, kwargs):
        self.ends.append((clock(), self._samples))
        self._samples = 0
        since = len(self.ends) - self.warmup
        if since == 0:
            self._stop_sampling()
            self._sample(SETTLING_STEPS)
        elif self.sampling and since == SETTLING_STEPS and self._profiler is None:
            self._profile_time()
        elif self.sampling and since >= SETTLING_STEPS + self.sampled_steps:
            self._stop_sampling()

    # --- of a few steps ---------------------------------------------------------------------------------------------

    @property
    def sampling(self):
        """Whether time, memory and the graph are being looked at."""
        return self._sampling is not None

    _sampling = None
    _naming = False

    def _sample(self, settling=0):
        """Begin to look closely; at time only when so many steps have settled."""
        self._sampling, self._profiler = contextlib.ExitStack(), None
        self.picture, self._naming = None, self._model is not None
        if self._naming:
            self._sampling.enter_context(naming(self._model))
        self._memory = self._sampling.enter_context(record())
        if not settling:
            self._profile_time()

    def _profile_time(self):
        self.sampled = (len(self.ends), 0)
        self._profiler = profile(with_modules=True)
        self._profiler.start()

    def _stop_sampling(self):
        if self._sampling is None:
            return
        sampling, self._sampling = self._sampling, None
        try:
            if self._profiler is not None:
                self._profiler.stop()
                self.sampled = (self.sampled[0], len(self.ends) - self.sampled[0])
        finally:
            sampling.close()
        self.memory = self._memory.result
        if self._profiler is not None:
            self.profile, self._last_profiler = self._profiler.profile, self._profiler

"""Trade computing for memory: forget what autograd keeps in a stretch of code, and run the stretch again at backward.

The stretch runs under saved-tensor hooks that keep only a placeholder for each tensor. The first that a backward asks
for runs the stretch once more, under hooks that collect the tensors in the same order; they live as long as that
backward, and as the nodes that hold the placeholders. A backward may come while the stretch is still running, from
inside of it; and stretches nest: the arguments of an inner one are kept as the outer one keeps everything.
"""
import threading
import weakref
from contextlib import contextmanager, nullcontext

from ..autograd.engine import backward as run_backward
from ..autograd.function import Function
from ..autograd.graph import saved_tensors_hooks
from ..autograd.modes import enable_grad, modes, no_grad
from ..autograd.node import Kept, keep
from ..backends.cpu.random.default_streams import Positions
from ..base.errors import Ended, here, line_of, warn
from ..base.lazy import import_when_asked
from ..base.names import attribute_error
from ..tensor.autocast import resumed
from ..tensor.tensor import Tensor

_SELECTIVE = ("CheckpointPolicy", "SAC_IGNORED_OPS", "SelectiveCheckpointContext",
              "create_selective_checkpoint_contexts")
__all__ = ["CheckpointError", *_SELECTIVE, "checkpoint", "checkpoint_sequential", "get_device_states",
           "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states"]


__getattr__ = import_when_asked(__name__, {name: f"utils.selective_checkpoint:{name}" for name in _SELECTIVE},
                                lambda name: attribute_error("torch.utils.checkpoint", name, lambda: __all__))


class CheckpointError(RuntimeError):
    """Raised where running the stretch again did not do the same as the first time."""


class _Done(Ended):
    """Ends the second run once everything that was asked for has been collected."""


@contextmanager
def _drawing(rng):
    """A context in which random numbers are drawn from the state `rng` on; from where they were, if it is None."""
    if rng is None:
        yield
        return
    after = Positions()
    rng.restore()
    try:
        yield
    finally:
        after.restore()


class _Placeholder:
    """Stands for a tensor that was not kept. The node that would keep it holds it."""

    __slots__ = ("__weakref__",)


class _SecondRun:
    """What one backward has collected: placeholder → tensor, and how many came by."""

    def __init__(self):
        self.found = weakref.WeakKeyDictionary()
        self.count = 0


class _Stretch:
    """One call of `checkpoint`: how to run it again, and what the second runs collected."""

    def __init__(self, fn, args, kwargs, rng, site, contexts, check, early_stop):
        self.fn, self.kwargs, self.rng, self.site = fn, kwargs, rng, site
        # Inside of another stretch an argument is mostly one of those tensors that are not to be kept.
        self.args = [keep(a) if modes.saved_hooks and _plain(a) else a for a in args]
        self.versions = [a._version if _plain(a) else None for a in args]
        self.contexts = contexts
        self.check, self.early_stop = check, early_stop
        self.casting = modes.autocast
        self.placeholders, self.specs = [], []   # of what the first run would have kept, in order: weakly, and its spec
        self.complete = False                    # whether the first run is
        self.second_runs = weakref.WeakKeyDictionary()         # backward → _SecondRun

    def pack(self, tensor):
        placeholder = _Placeholder()
        self.placeholders.append(weakref.ref(placeholder))
        self.specs.append((tuple(tensor.shape), tensor.dtype, tensor.device))
        return placeholder

    def unpack(self, placeholder):
        backward_pass = modes.backward_pass
        run = self.second_runs.get(backward_pass) if backward_pass is not None else None
        if run is None:
            run = self.run_again()
            if backward_pass is not None:
                self.second_runs[backward_pass] = run
        return run.found[placeholder]

    def arguments(self):
        """The arguments of the first run, refused if one was written since: the numbers would be others."""
        for i, (a, version) in enumerate(zip(self.args, self.versions, strict=True)):
            if isinstance(a, Tensor) and version is not None and a._version != version:
                raise RuntimeError("one of the variables needed for gradient computation has been modified by an "
                                   f"inplace operation: [torch.{a.dtype.cname}Tensor {list(a.shape)}] is at version "
                                   f"{a._version}; expected version {version} instead.\n  It is argument {i} of the "
                                   f"checkpoint made at {line_of(self.site)}, which is run again for its gradient: "
                                   "write to a clone() inside of the function, or run backward before.")
        return [a.unpack(None) if isinstance(a, Kept) else a for a in self.args]

    def run_again(self):
        args, run = self.arguments(), _SecondRun()

        def collect(tensor):
            tensor = tensor.detach()
            run.count += 1
            if run.count <= len(self.placeholders):
                placeholder = self.placeholders[run.count - 1]()
                if placeholder is not None:                    # else a backward from inside is done with it
                    run.found[placeholder] = tensor
                    self.refuse_another_spec(run.count - 1, tensor)
            elif self.complete:                                # else this run may well be ahead of the first one
                raise CheckpointError("torch.utils.checkpoint: trying to save more tensors during recomputation than "
                                      f"during the original forward pass, {len(self.placeholders)}.\n  The checkpoint "
                                      f"was made at {line_of(self.site)}: what it runs must not depend on anything "
                                      "that changes.")
            if self.early_stop and run.count == len(self.placeholders):
                raise _Done
            return tensor

        try:
            with _drawing(self.rng), enable_grad(), resumed(self.casting), \
                    saved_tensors_hooks(collect, lambda unpacked: unpacked), self.contexts:
                self.fn(*args, **self.kwargs)
        except _Done:
            pass
        if run.count < len(self.placeholders):
            raise CheckpointError("torch.utils.checkpoint: A different number of tensors was saved during the original "
                                  "forward and recomputation.\nNumber of tensors saved during forward: "
                                  f"{len(self.placeholders)}\nNumber of tensors saved during recomputation: "
                                  f"{run.count}.\n  The checkpoint was made at {line_of(self.site)}: what it "
                                  "runs must not depend on anything that changes.")
        return run

    def refuse_another_spec(self, number, tensor):
        now = (tuple(tensor.shape), tensor.dtype, tensor.device)
        if self.check and now != self.specs[number]:
            raise CheckpointError("torch.utils.checkpoint: Recomputed values for the following tensors have different "
                                  f"metadata than during the forward pass.\ntensor at position {number}:\nsaved "
                                  f"metadata: {self.specs[number]}\nrecomputed metadata: {now}\n  The checkpoint was "
                                  f"made at {line_of(self.site)}.")


def _plain(a):
    return isinstance(a, Tensor) and not a.is_inference()


def noop_context_fn():
    """The contexts of the first and the second run, where nothing is asked of them."""
    return nullcontext(), nullcontext()


class _Asked(threading.local):
    early_stop = None             # what set_checkpoint_early_stop says


asked = _Asked()


@contextmanager
def set_checkpoint_early_stop(enable):
    """A context: whether the second runs of checkpoints made inside end as soon as all is there that is needed."""
    before, asked.early_stop = asked.early_stop, enable
    try:
        yield
    finally:
        asked.early_stop = before


def set_checkpoint_debug_enabled(enabled):
    """A context that stands for `debug=` of the checkpoints inside. Errors name the checkpoint's line either way."""
    return nullcontext()


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default",
               debug=False, preserve_rng_state=True, early_stop=True, **kwargs):
    """Run `function` without keeping what its backward needs; backward runs it again."""
    if use_reentrant is None:
        warn("torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Flambeau uses "
             "use_reentrant=False where it is not given.")
        use_reentrant = False
    rng = Positions() if preserve_rng_state else None
    if use_reentrant:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}; use_reentrant=True takes positional "
                             "arguments")
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return _Reentrant.apply(function, rng, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of 'default', 'none', got {determinism_check!r}")
    first, second = context_fn()
    if not modes.grad:
        return function(*args, **kwargs)
    early_stop = early_stop if asked.early_stop is None else asked.early_stop
    stretch = _Stretch(function, args, kwargs, rng, here(), second, determinism_check == "default", early_stop)
    with saved_tensors_hooks(stretch.pack, stretch.unpack), first:
        made = function(*args, **kwargs)
        stretch.complete = True
    if not stretch.complete:
        raise RuntimeError("torch.utils.checkpoint: a context of context_fn suppressed the exception that the function "
                           "raised, so that there is no result; let __exit__ return False")
    return made


class _Reentrant(Function):
    """The older way: run without a graph, and run again with one inside backward."""

    @staticmethod
    def forward(ctx, function, rng, *args):
        ctx.function_, ctx.rng, ctx.casting = function, rng, modes.autocast
        ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_indices])
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if not modes.backward_pass.whole:
            raise RuntimeError("When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                               "passing an `inputs` parameter to .backward(): gradients of what the function reads "
                               "besides its arguments would be added up where nobody asked for them. Set "
                               "use_reentrant=False, or call .backward() without `inputs`.")
        args = list(ctx.plain)
        for i, t in zip(ctx.tensor_indices, ctx.saved_tensors, strict=True):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with _drawing(ctx.rng), enable_grad(), resumed(ctx.casting):
            outs = ctx.function_(*args)
        outs = outs if isinstance(outs, tuple) else (outs,)
        live = [(o, g) for o, g in zip(outs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not live:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        run_backward([o for o, _ in live], [g for _, g in live])
        return (None, None, *[a._grad if isinstance(a, Tensor) else None for a in args])


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Run a sequence of functions in `segments` checkpointed pieces, the last one plainly."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(functions) // segments

    def piece(start, end):
        def run(x):
            for f in functions[start:end]:
                x = f(x)
            return x
        return run

    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(piece(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return piece(end, len(functions))(input)


def get_device_states(*args):
    """(indices, generator states) of the devices besides the CPU that `args` lie on: of none. sentence-transformers."""
    return [], []


def set_device_states(devices, states, *, device_type=None):
    """Set the states of generators of devices besides the CPU: there are none."""
    if len(devices):
        raise RuntimeError(f"devices {list(devices)} are not there: Flambeau has the CPU alone")

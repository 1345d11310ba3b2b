"""`torch.compiler`: record a function once and replay it. See docs/compile.md.

What does the work is imported when a function is compiled, not before.
"""

__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
           "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset"]

BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs")
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """A function that does what `model` (a function, or an object that is called) does, and replays it where it can.

    The first calls run as always and are recorded; later ones replay the recording without running its Python. Where a
    function cannot be replayed, it runs as ordinary code, and `explain()` says why.

    - `fullgraph`: raise a RuntimeError where the function cannot be replayed.
    - `backend`: "inductor" replays; "eager" runs the function as it is.
    - `dynamic`, `mode` and `options` are accepted, and change nothing: numbers are always read anew, a new shape is one
      more recording, and there is one way to run.
    - `disable`: leave the function as it is.

    >>> @torch.compile
    ... def scaled(x, factor):
    ...     return x * factor + 1
    >>> [scaled(torch.ones(2), f).tolist() for f in (1.0, 2.0, 3.0)]
    [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]
    >>> len(scaled.recordings)
    1
    """
    if backend not in BACKENDS and not callable(backend):
        raise ValueError(f"unknown backend {backend!r}: flambeau.compile knows {', '.join(map(repr, BACKENDS))}")
    if callable(backend):
        raise NotImplementedError("a function as backend: there is no FX graph here to hand to it; use "
                                  "backend='inductor', and explain() to see what was recorded")
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}: flambeau.compile knows {', '.join(map(repr, MODES))}")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is None:
        return lambda model: compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                     options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile() takes something that can be called, not {type(model).__name__}")
    if isinstance(model, type):
        raise TypeError(f"compile() takes a function or an object, not the class {model.__name__}")
    if disable or backend == "eager" or getattr(model, "_compile_disabled", False):
        return model
    if isinstance(getattr(model, "_modules", None), dict):        # a module: nothing else has such a thing
        from .module import OptimizedModule
        return OptimizedModule(model, fullgraph)
    return _compiled().Compiled(model, fullgraph)


def _compiled():
    from . import compiled
    return compiled


def disable(fn=None, recursive=True, *, reason=None):
    """Never compile `fn`; a compiled function that calls it runs as ordinary code."""
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    return _compiled().disabled(fn, reason)


def is_compiling():
    """Whether the code that asks is being recorded."""
    return _compiled().is_recording()


is_dynamo_compiling = is_compiling


def reset():
    """Forget every recording of every compiled function."""
    _compiled().reset()


def list_backends(exclude_tags=()):
    """The backends that `compile` knows."""
    return list(BACKENDS)


def is_exporting():
    """Whether the code that asks is being exported: never."""
    return False


def allow_in_graph(fn):
    """`fn`, which PyTorch's compiler would take as one step; here what it calls is recorded anyway."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn):
    """`fn`, whose result PyTorch's compiler would keep; here it is called."""
    return fn


def cudagraph_mark_step_begin():
    """Say that a step begins, to CUDA graphs, which are not here."""

"""Run a program that is a single native call: one_call.pyx does in C what `Program.run` does, where nobody observes.

See Note [One source, two speeds] in base/core.py.
"""


def one_call(program, stretch):
    """What runs the trace of `program`, whose only stretch is `stretch`, and empties it; None: `Program.run` does."""

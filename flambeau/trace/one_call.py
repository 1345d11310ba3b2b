"""Run a program that is all native: one_call.pyx does in C what `Program.run` does, where nobody observes.

See Note [One source, two speeds] in base/core.py.
"""


def one_call(program):
    """What runs the trace of `program`, and empties it; None: `Program.run` does."""

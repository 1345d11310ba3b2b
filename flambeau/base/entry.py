"""What is known about a call before it runs.

A part of the compiled core: see Note [One source, two speeds] in core.py.
"""


class Entry:
    """All that is known about one call before it runs; found again by its key (operation, specs, parameters)."""

    __slots__ = ("op", "outs", "many", "casts", "template", "simple", "param_at", "pick", "wrap", "input_specs",
                 "zeros", "deltas", "look", "nbytes", "weight", "device", "compiles", "recipes", "quick", "compute",
                 "fits", "rounded", "larger", "checked", "several", "singles", "traces", "latest")

    def __init__(self):
        self.traces = 0       # in how many traces without a plan it has come: see segments.py in trace
        self.latest = -1      # the number of the last of them

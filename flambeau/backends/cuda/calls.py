"""What the library of a GPU answers: calls that go into a program, over the addresses of operands, results and scratch.

A `LaunchCall` is a kernel written by hand, of the same form as those that are rendered (loops/gpu): its Params are
8-byte words, one address for each operand or result and then `ints`. It goes through the same words and the same cache
of compiled code. A `HostCall` is a function of NVIDIA's libraries, called from Python while the program is gone
through; it puts its work on the stream that it is given, and nothing else, so that it can be captured in a graph.

`scratch` is how many bytes of working memory the call needs: with any, their place comes behind those of the results
(trace/planning/plan.py makes room for the most that one of the calls of a step asks for).
"""
from typing import NamedTuple


class LaunchCall(NamedTuple):
    """One launch of the kernel `name` in the CUDA C++ text `source`."""

    source: str
    name: str
    grid: tuple           # (x, y, z)
    block: tuple
    shared_bytes: int = 0
    ints: tuple = ()
    scratch: int = 0


class HostCall(NamedTuple):
    """`fn(addresses, stream)`: addresses of operands, results and scratch, in order, and the handle of a stream.

    It may be called again where an interrupt came in the middle, so it does not write to what it reads. `says` is what
    is shown of it. `prepare(stream)` makes what the library needs for a stream, before that is captured.
    """

    fn: object
    says: str = ""
    scratch: int = 0
    prepare: object = None

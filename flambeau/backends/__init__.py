"""What a device can do: run operations on arrays, hold memory, draw random numbers.

`torch.backends.cudnn` and its like are here for programs that set their switches; they answer that nothing is there.
"""


class _Absent:
    """A library that is not there: `is_available()` says so, and switches can be set without effect."""

    def __init__(self, **switches):
        self.__dict__.update(switches)

    def is_available(self):
        """Whether the library can be used."""
        return False

    is_built = is_available


cudnn = _Absent(enabled=False, benchmark=False, deterministic=False, allow_tf32=False)
cuda = _Absent(matmul=_Absent(allow_tf32=False))
mps = _Absent()
mkl = _Absent()
mkldnn = _Absent(enabled=False)

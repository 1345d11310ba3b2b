"""Generators of random numbers: their seeds and states, and the stream that a draw takes its numbers from."""
from contextlib import contextmanager

from ..backends.cpu.random import default_streams as streams
from ..backends.cpu.random.draws import MersenneTwister
from ..backends.cpu.random.random_stream import DEFAULT_SEED
from ..base import dtypes
from ..base.errors import argument_error, need
from ..base.spec import CPU, META, as_device, device as make_device
from .create import from_array
from .reading import array_of
from .tensor import Tensor

PUBLIC = ("Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state")


class Generator:
    """A stream of random numbers with a seed and a state of its own; the same numbers as `torch.Generator`.

    >>> g = torch.Generator().manual_seed(0)
    >>> torch.randint(10, (3,), generator=g)
    tensor([4, 9, 3])
    """

    def __init__(self, device="cpu"):
        where = as_device(device)
        if where.backend is None:
            raise RuntimeError(f"Cannot get a generator for device '{where}': no numbers are drawn there. Make a "
                               "torch.Generator() without a device")
        self._stream = where.backend.new_random_stream() or MersenneTwister(where)
        self._stream.manual_seed(DEFAULT_SEED)

    @classmethod
    def over(cls, source):
        """The generator of a RandomStream that is there."""
        made = cls.__new__(cls)
        made._stream = source
        return made

    @property
    def device(self):
        return self._stream.device

    def manual_seed(self, seed):
        """Start over from `seed`, an integer in [-2**63, 2**64); a negative one counts from 2**64."""
        self._stream.manual_seed(seed)
        return self

    def seed(self):
        """Start over from a seed that the operating system picks, and return it."""
        return self._stream.seed()

    def initial_seed(self):
        """The seed that it started from."""
        return self._stream.initial_seed()

    def get_state(self):
        """The state as a tensor of bytes on the CPU, laid out as PyTorch's."""
        return from_array(self._stream.get_state())

    def set_state(self, new_state):
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        if not isinstance(new_state, Tensor) or new_state.dtype is not dtypes.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor, got "
                            + (repr(new_state.dtype) if isinstance(new_state, Tensor) else type(new_state).__name__))
        self._stream.set_state(array_of(new_state))
        return self

    def get_offset(self):
        """How many words a thread of the device has drawn since the seed; of a CUDA generator."""
        return self._with_offset().get_offset()

    def set_offset(self, offset):
        """Continue as after `offset` words, a multiple of 4; of a CUDA generator."""
        self._with_offset().set_offset(offset)
        return self

    def _with_offset(self):
        need(hasattr(self._stream, "get_offset"), f"{self.device.type.upper()} Generator does not use offset")
        return self._stream

    def clone_state(self):
        """Another generator that will draw the same numbers as this one."""
        return Generator.over(self._stream.clone_state())

    def __reduce__(self):
        """What PyTorch's pickles hold, so that files go both ways."""
        offset = self.get_offset() if hasattr(self._stream, "get_offset") else None
        return Generator, (self.device,), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, kept):
        seed, offset, state = kept
        self.manual_seed(seed)
        if offset is not None:
            self.set_offset(offset)
        self.set_state(state)


default_generator = Generator.over(streams.stream_of(CPU))


def manual_seed(seed):
    """Start the default generators of all devices over from `seed`, and give the CPU's.

    >>> first = torch.manual_seed(1), torch.rand(2)
    >>> second = torch.manual_seed(1), torch.rand(2)
    >>> torch.equal(first[1], second[1])
    True
    """
    default_generator.manual_seed(int(seed))
    streams.seed_devices(int(seed))
    return default_generator


def seed():
    """Start the default generators over from a seed that the operating system picks, and return it."""
    made = default_generator.seed()
    streams.seed_devices(made)
    return made


def initial_seed():
    """The seed that the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state():
    """The state of the default generator, a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Continue the default generator from `new_state`."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Inside, draws leave the states of the default generators as they are outside, those of all devices."""
    make_device(device_type)                      # or it is refused
    before = streams.Positions() if enabled else None
    try:
        yield
    finally:
        if enabled:
            before.restore()


def stream(generator, device=CPU):
    """The RandomStream to draw from for a tensor on `device`."""
    own = streams.stream_of(device)
    if generator is None:
        return own
    if not isinstance(generator, Generator):
        raise argument_error(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    source = generator._stream
    ours = type(source) is type(own) and source.device.type in ("cpu", device.type)
    need(ours or device is META, f"Expected a '{device.type}' device type for generator but found "
                                 f"'{source.device.type}'")
    return source.on(device)

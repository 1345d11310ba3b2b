"""Device, Size and Spec: what a tensor is, without its contents.

A Spec (dtype, shape, strides, device) is interned, so that caches can key on its identity.
"""
from collections import Counter
from operator import index
from typing import Any

import numpy as np

from . import dtypes, shapes
from .errors import need
from .ownership import is_unused

DEVICE_TYPES = ("cpu", "cuda", "mps", "meta")
accelerator: Any = None       # a function that gives the type of the device besides the CPU, or refuses for want of one
openers: dict = {}            # type → a function that gives such a device its backend, and one without index an index


def _device_hint(name):
    """What may have been meant by the name of a device that there is none of."""
    if name in ("gpu", "GPU", "nvidia"):
        return "; a GPU is called cuda"
    try:
        return f"; it is a dtype: write torch.{dtypes.named(name.removeprefix('torch.')).name}"
    except KeyError:
        return ""


class device:
    """Where a tensor lives: `device("cpu")`, `device("cuda", 0)`. As a context, the place of new tensors."""

    __slots__ = ("type", "index", "backend", "__weakref__")
    _known: dict = {}
    type: str
    index: int | None
    backend: Any

    def __new__(cls, type=None, index=None):
        if isinstance(type, device):
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = accelerator(type), type
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' (position 1) must be str, not {type.__class__.__name__}")
        key = (type, index)
        found = cls._known.get(key)
        if found is not None:
            return found
        name, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError("type (string) must not include an index because index was passed explicitly: "
                                   f"{type}")
            if not number.isdigit() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if name not in DEVICE_TYPES and name not in openers:
            raise RuntimeError(f"Expected one of {', '.join(DEVICE_TYPES)} device type at start of device string: "
                               f"{name}{_device_hint(name)}")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        made = cls._known.get((name, index))
        if made is None:
            made = object.__new__(cls)
            made.type, made.index = name, index
            made.backend = None   # what works there, once a tensor was asked for there; see backends/backend.py
            made = cls._known.setdefault((name, index), made)
        cls._known[key] = made
        return made

    def __repr__(self):
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        if other is self:
            return True
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    __hash__ = object.__hash__            # equal ones are one object

    def __reduce__(self):
        return (device, (self.type, self.index))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __enter__(self):
        _default_devices.append(self)
        return self

    def __exit__(self, *exc):
        _default_devices.pop()


CPU = device("cpu")
META = device("meta")
_default_devices = [CPU]


def default_device():
    """The device of new tensors when none is named."""
    return _default_devices[-1]


_named_device = device         # where an argument has that name


def set_default_device(device):
    """Make `device` that of new tensors from now on."""
    _default_devices[0] = CPU if device is None else _named_device(device)


def as_device(where):
    """The device object for `where` (None: the default), refused in plain words if it is not there."""
    found = default_device() if where is None else where if isinstance(where, device) else device(where)
    if found.backend is not None or found is META:
        return found
    if found.type in ("cpu", "meta"):
        need(found.index in (None, 0) or found.type == "meta", f"device {found} does not exist: there is one CPU "
                                                               "device, 'cpu'")
        return CPU if found.type == "cpu" else META
    if found.type in openers:
        return openers[found.type](found)
    raise RuntimeError(f"The {found.type} backend is not available here; use device='cpu'")


def _whole(at, n):
    """One of the sizes that a Size is made of, as an int."""
    try:
        return index(n)
    except TypeError:
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {at} is '{type(n).__name__}')") from None


class Size(tuple):
    """A tensor's shape: a tuple of ints that knows its number of elements."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        made = tuple.__new__(cls, sizes)
        for n in made:
            if n.__class__ is not int:
                return tuple.__new__(cls, [_whole(at, n) for at, n in enumerate(made)])
        return made

    def numel(self):
        """How many elements a tensor of this size has."""
        return shapes.numel(self)

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    __str__ = __repr__

    def __getitem__(self, index):
        got = tuple.__getitem__(self, index)
        return Size(got) if isinstance(index, slice) else got

    def __add__(self, other):
        if isinstance(other, tuple):
            return Size(tuple.__add__(self, tuple(other)))
        if hasattr(type(other), "__radd__"):
            return NotImplemented
        raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times):
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self):
        return (Size, (tuple(self),))


class Spec:
    """What a tensor is without its contents. Made by `spec()`, one object for equal arguments.

    `weight` is what its bytes count in `config.trace_bytes`, on its device: see `Backend.trace_weight`.
    """

    __slots__ = ("dtype", "shape", "strides", "device", "ndim", "numel", "size", "np_strides", "contiguous", "dense",
                 "nbytes", "weight")
    dtype: dtypes.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: Size
    np_strides: tuple[int, ...]       # in bytes
    ndim: int
    numel: int
    nbytes: int
    weight: int
    contiguous: bool
    dense: bool
    device: device

    def __repr__(self):
        layout = "" if self.contiguous else f" strides {list(self.strides)}"
        where = "" if self.device is CPU else f" on {self.device}"
        return f"{self.dtype.name}{list(self.shape)}{layout}{where}"

    def on(self, device):
        """The same on another device."""
        return spec(self.dtype, self.shape, self.strides, device)

    def like(self, dtype=None, shape=None, strides=None):
        """A contiguous spec with some parts replaced (strides kept only if shape is)."""
        if shape is None:
            return spec(dtype or self.dtype, self.shape, strides or self.strides, self.device)
        return spec(dtype or self.dtype, shape, strides, self.device)


MAX_SPECS = 50_000            # about a KiB each; with more, those that are not used are forgotten
_interned: dict = {}
_limit = 0                    # how many there may be before that is tried again, if it is more than MAX_SPECS
on_too_many: list = []        # functions that let go of what remembers calls, and with it specs


def spec(dtype: dtypes.dtype, shape: tuple[int, ...], strides: tuple[int, ...] | None = None,
         device: device = CPU) -> Spec:
    """The Spec with these parts; contiguous where `strides` is None."""
    key = (dtype, shape, strides, device)
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = _make(dtype, tuple(shape), strides, device)
    return found


def _make(dtype, shape, strides, device):
    row_major = shapes.contiguous_strides(shape)
    strides = row_major if strides is None else tuple(strides)
    key = (dtype, shape, strides, device)
    s = _interned.get(key)
    if s is not None:
        return s
    need(len(shape) <= 64, f"a tensor has at most 64 dimensions, as NumPy's arrays do, and this one would have "
                           f"{len(shape)}; flatten() or reshape() some of them into one")
    if dtype.np is None:                # see Note [Dtypes of limited support] in dtypes.py
        dtypes.no_tensors(dtype)
    s = Spec()
    s.dtype, s.shape, s.strides, s.device = dtype, shape, strides, device
    s.ndim, s.numel, s.size = len(shape), shapes.numel(shape), Size(shape)
    s.np_strides = tuple(step * dtype.itemsize for step in strides)
    s.contiguous = strides == row_major or shapes.is_contiguous(shape, strides)
    s.dense = s.contiguous or shapes.is_dense(shape, strides)
    s.nbytes = s.numel * dtype.itemsize
    need(s.nbytes < 1 << 63 or not s.dense, f"Storage size calculation overflowed with sizes={list(shape)}")
    s.weight = s.nbytes if device.backend is None else int(s.nbytes * device.backend.trace_weight)
    if len(_interned) >= max(MAX_SPECS, _limit):
        make_room()
    return _interned.setdefault(key, s)


def make_room():
    """Forget specs. A program with ever new shapes comes here now and then, also if it only looks at them."""
    global _limit
    for forget in on_too_many:
        forget()
    forget_unused()
    _limit = 2 * len(_interned)           # what is in use stays, and is not gone through for each new one


def forget_unused():
    """Drop the specs that nothing else holds."""
    table = dict(_interned)                                          # other threads go on adding
    entries = Counter(map(id, table.values()))                       # some stand under two keys
    for key in table:
        if is_unused(table, key, 2 * entries[id(table[key])]):       # this table, and the one it was copied from
            _interned.pop(key, None)


def of_array(array, laid=False, device=CPU):
    """The contiguous spec of an array's dtype and shape; `laid`: with its strides, where it has no holes."""
    strides = tuple([s // array.itemsize for s in array.strides]) if laid and array.size else None
    return spec(dtypes.from_numpy(np.dtype(array.dtype)), array.shape, strides, device)

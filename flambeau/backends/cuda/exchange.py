"""Memory of a GPU that other libraries look at too: the CUDA array interface and DLPack, both ways.

A library that takes such memory reads and writes it on a stream of its own. So what was handed to our current stream
before is said to be done there first (`stream` of the interface, DLPack's argument), and what others hand us is waited
for on theirs.
"""
from typing import Any, NamedTuple

import numpy as np

from ...base import dtypes, shapes
from ...base.spec import device as device_type
from .. import dlpack
from . import driver

DEFAULT_STREAM = 1            # of the interface's streams, the one whose handle is 0


class Foreign(NamedTuple):
    """Memory of another library on `device`: `memory` is an array of its bytes, and keeps it; a tensor of `dtype`,
    `shape` and `strides` (in elements) starts at its beginning."""

    device: Any
    memory: Any
    dtype: Any
    shape: tuple
    strides: tuple
    readonly: bool


# --- out -------------------------------------------------------------------------------------------------------------


def interface(backend, address, spec):
    """`__cuda_array_interface__` of a tensor that lies as `spec` from `address` on."""
    stream = backend.driver.current_stream(backend.index).handle
    return {"typestr": f"<V{spec.dtype.itemsize}" if spec.dtype.foreign else spec.dtype.np.str, "shape": spec.shape,
            "strides": None if spec.contiguous else spec.np_strides, "data": (address if spec.numel else 0, False),
            "version": 3, "stream": stream or DEFAULT_STREAM}


def packed(backend, owner, spec, offset, stream, max_version):
    """A DLPack capsule of a tensor that lies as `spec`, `offset` elements into the bytes of `owner.memory`."""
    dtype, start = spec.dtype, backend.address(owner.memory) + offset * spec.dtype.itemsize
    reach = shapes.extent(spec.shape, spec.strides) * dtype.itemsize if spec.numel else 0
    np_dtype = np.dtype(f"u{dtype.itemsize}") if dtype in dlpack.TYPE_CODES else dtype.np
    with backend.active():
        array = backend.driver.array_at(backend.index, start, reach, spec.shape, np_dtype, spec.np_strides, owner=owner)
        capsule = array.__dlpack__(stream=stream, max_version=max_version)
    if dtype in dlpack.TYPE_CODES:
        dlpack.opened(capsule).code = dlpack.TYPE_CODES[dtype]
    return capsule


# --- in --------------------------------------------------------------------------------------------------------------


def from_interface(thing):
    """The Foreign memory that an object shows through `__cuda_array_interface__`; None if it has none."""
    known = getattr(thing, "__cuda_array_interface__", None)
    if not isinstance(known, dict):
        return None
    software = driver.current()
    (address, readonly), shape = known["data"], tuple(known["shape"])
    dtype = _dtype_of(np.dtype(known["typestr"]))
    steps = known.get("strides")
    strides = shapes.contiguous_strides(shape) if steps is None else _elements(steps, dtype)
    index = software.device_of(address) if address else software.current_device()
    reach = shapes.extent(shape, strides) * dtype.itemsize if shapes.numel(shape) else 0
    stream = known.get("stream")
    if stream is not None:
        _wait_for(software, index, 0 if stream == DEFAULT_STREAM else stream)
    memory = software.array_at(index, address, reach, (reach,), np.uint8, owner=thing) if reach else \
        software.array(software.allocate(index, 0), (0,), np.uint8)
    return Foreign(device_type("cuda", index), memory, dtype, shape, strides, bool(readonly))


def from_dlpack(thing):
    """The Foreign memory of an object with `__dlpack__`, or of a capsule, on a GPU."""
    software = driver.current()
    array = software.xp.from_dlpack(thing)
    dtype = _dtype_of(np.dtype(array.dtype))
    strides = _elements(array.strides, dtype)
    reach = shapes.extent(array.shape, strides) * dtype.itemsize if array.size else 0
    memory = software.array(array, (reach,), np.uint8)
    return Foreign(device_type("cuda", int(array.device.id)), memory, dtype, tuple(array.shape), strides, False)


def _dtype_of(dtype):
    """Ours for NumPy's; two bytes without a name are a bfloat16."""
    return dtypes.bfloat16 if dtype.kind == "V" and dtype.itemsize == 2 else dtypes.from_numpy(dtype)


def _elements(steps, dtype):
    """Strides in elements, of those in bytes."""
    if any(step < 0 or step % dtype.itemsize for step in steps):
        raise ValueError(f"a tensor's strides are whole numbers of elements, and not negative; these are "
                         f"{tuple(steps)} bytes, and an element has {dtype.itemsize}. Copy the array first.")
    return tuple([step // dtype.itemsize for step in steps])


def _wait_for(software, index, handle):
    """Let the current stream wait for what another one was handed."""
    current = software.current_stream(index)
    if handle != current.handle:
        event = software.event()
        event.record(software.external_stream(index, handle))
        current.wait(event)

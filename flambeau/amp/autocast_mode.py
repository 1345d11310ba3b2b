"""`autocast` and the switches behind it. What an operation does in a region stands in tensor/autocast.py."""
import functools

from ..autograd.modes import modes
from ..backends import devices
from ..base import dtypes
from ..base.errors import warn
from ..base.spec import device as Device
from ..tensor.autocast import clear_cache, eligible, region
from ..tensor.overrides import count_region
from ..tensor.tensor import Tensor
from ..trace.recording.record import current

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

# The dtype that regions have unless they say another, of PyTorch's devices that are not here; others' Backends say it.
DEFAULT = {"mps": dtypes.float16, "xpu": dtypes.float16, "hpu": dtypes.bfloat16, "xla": dtypes.bfloat16,
           "mtia": dtypes.float16, "maia": dtypes.bfloat16, "ipu": dtypes.float16, "privateuseone": dtypes.float16}


class autocast:
    """A region in which operations that gain from a lower precision compute in it; a context and a decorator.

    >>> weight = torch.randn(4, 3, requires_grad=True)
    >>> with torch.autocast("cpu"):
    ...     out = torch.randn(2, 3) @ weight.t()
    >>> out.dtype
    torch.bfloat16
    >>> out.sum().backward()
    >>> weight.grad.dtype
    torch.float32
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = _type_of(device_type)
        self.fast_dtype = dtype if dtype is not None else get_autocast_dtype(device_type)
        self._cache_enabled = region.cache_enabled if cache_enabled is None else cache_enabled
        self._enabled = enabled
        if not enabled or self.device not in devices.types:
            return
        known = _dtypes(self.device)
        name = self.device.upper() if self.device in devices.DEVICE_NUMBERS else self.device
        if not devices.available(self.device):
            warn(f"{name} is not available or torch_xla is imported. Disabling autocast.")
            self._enabled = False
        elif self.fast_dtype not in known:
            warn(f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n{name} Autocast "
                 f"only supports dtypes of {', '.join(map(str, known))} currently.")
            self._enabled = False

    def __enter__(self):
        region.outer.append((region.enabled.get(self.device, False), region.dtype.get(self.device),
                             region.cache_enabled, modes.autocast, region.site))
        region.site = current().site
        region.nesting += 1
        region.cache_enabled = self._cache_enabled
        region.dtype[self.device] = self.fast_dtype
        _switch(self.device, self._enabled)
        return self

    def __exit__(self, *exc):
        enabled, dtype, region.cache_enabled, casting, region.site = region.outer.pop()
        region.dtype[self.device] = dtype
        _switch(self.device, enabled)
        modes.autocast = casting                    # inside a backward it was set aside although enabled
        autocast_decrement_nesting()
        if not region.nesting:
            clear_cache()
        return False

    def __call__(self, func):
        @functools.wraps(func)
        def inside(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return inside


def autocast_decorator(autocast_instance, func):
    """`func` with its calls inside the region."""
    return autocast_instance(func)


def _switch(device, enabled):
    """Set whether autocast is on for a device in this thread, and let the door know."""
    region.enabled[device] = bool(enabled)
    if device in devices.types:
        modes.autocast = {one: get_autocast_dtype(one) for one, on in region.enabled.items()
                          if on and one in devices.types} or None
        enabled = modes.autocast is not None
        if region.counted is not enabled:
            region.counted = enabled
            count_region(1 if enabled else -1)


def _type_of(device_type):
    """The device's type out of "cpu" or "cpu:0", refused as `torch.device` refuses it."""
    return Device(device_type).type if device_type not in DEFAULT else device_type


def _dtypes(device):
    """What regions for a type of device may compute in, the first of them unless they say another."""
    return devices.types[device].backend().autocast_dtypes if device in devices.types else (DEFAULT[device],)


def is_autocast_available(device_type):
    """Whether there are autocast regions for a device of this type."""
    device = _type_of(device_type)
    return device in DEFAULT or device in devices.types and bool(_dtypes(device))


# --- the switches, by themselves ----------------------------------------------------------------------------------


def is_autocast_enabled(device_type="cuda"):
    """Whether autocast is on for the device in this thread."""
    return region.enabled.get(_type_of(device_type), False)


def set_autocast_enabled(device_type, enabled=None):
    """Switch autocast on or off for the device in this thread; with one argument, for CUDA."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _switch(_type_of(device_type), enabled)


def get_autocast_dtype(device_type):
    """The dtype that autocast computes in on the device."""
    device = _type_of(device_type)
    if not is_autocast_available(device):
        raise RuntimeError(f"unsupported scalarType: there is no autocast on a device of type '{device}'")
    return region.dtype.get(device) or _dtypes(device)[0]


def set_autocast_dtype(device_type, dtype):
    """Set the dtype that autocast computes in on the device."""
    device = _type_of(device_type)
    region.dtype[device] = dtype
    if modes.autocast is not None and device in modes.autocast:
        modes.autocast = {**modes.autocast, device: dtype}


def is_autocast_cache_enabled():
    """Whether the cast of a parameter is kept until the end of the region."""
    return region.cache_enabled


def set_autocast_cache_enabled(enabled):
    """Set whether the cast of a parameter is kept until the end of the region."""
    region.cache_enabled = bool(enabled)


def autocast_increment_nesting():
    """Enter one more region, in the count of them; the new count."""
    region.nesting += 1
    return region.nesting


def autocast_decrement_nesting():
    """Leave a region, in the count of them; the new count."""
    region.nesting -= 1
    return region.nesting


clear_autocast_cache = clear_cache


def _old(name, device, instead):
    """A switch of one device under the name it had before it took the device."""
    def call(*args):
        warn(f"torch.{name}() is deprecated. Please use torch.{instead.__name__}('{device}'"
             f"{', …' if args else ''}) instead.", DeprecationWarning)
        return instead(device, *args)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{instead.__name__}` for the device {device!r}, under its old name."
    return call


is_autocast_cpu_enabled = _old("is_autocast_cpu_enabled", "cpu", is_autocast_enabled)
set_autocast_cpu_enabled = _old("set_autocast_cpu_enabled", "cpu", set_autocast_enabled)
get_autocast_cpu_dtype = _old("get_autocast_cpu_dtype", "cpu", get_autocast_dtype)
set_autocast_cpu_dtype = _old("set_autocast_cpu_dtype", "cpu", set_autocast_dtype)
get_autocast_gpu_dtype = _old("get_autocast_gpu_dtype", "cuda", get_autocast_dtype)
set_autocast_gpu_dtype = _old("set_autocast_gpu_dtype", "cuda", set_autocast_dtype)


# --- for a Function of the user's own -----------------------------------------------------------------------------


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorate a Function's `forward`: with `cast_inputs`, it runs outside of autocast, on arguments of that dtype.

    Without it, `forward` runs in the region as it is, and `custom_bwd` brings the region back for `backward`.
    """
    _must_be_text(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx, *args, **kwargs):
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = cast_inputs is None and is_autocast_enabled(device_type)
        if cast_inputs is None or not is_autocast_enabled(device_type):
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_as_dtype(args, device_type, cast_inputs), **_as_dtype(kwargs, device_type, cast_inputs))
    return forward


def custom_bwd(bwd=None, *, device_type):
    """Decorate a Function's `backward`: it runs with autocast on or off as `forward` did, under `custom_fwd`."""
    _must_be_text(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx, *args, **kwargs):
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)
    return backward


def _must_be_text(device_type):
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _as_dtype(value, device_type, dtype):
    """`value` with its floating tensors on the device as `dtype`, containers opened."""
    if isinstance(value, Tensor):
        return value.to(dtype) if eligible(value._spec, device_type) else value
    if isinstance(value, dict):
        return {_as_dtype(key, device_type, dtype): _as_dtype(part, device_type, dtype) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_as_dtype(part, device_type, dtype) for part in value]
        return type(value)._make(parts) if hasattr(value, "_fields") else type(value)(parts)
    return value

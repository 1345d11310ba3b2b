"""One launch at once, outside of any program: what a draw of random numbers is."""
import ctypes
import functools
import struct

from .code import kernels_of

ARGUMENTS = (ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
BUFFER_POINTER, BUFFER_SIZE, PARAMS_END = 1, 2, 0       # CU_LAUNCH_PARAM_*: how `extra` says where the Params are

_launcher = functools.cache(ctypes.CFUNCTYPE(ctypes.c_int, *ARGUMENTS))       # the C function at an address


def launch(backend, call, addresses):
    """Hand a LaunchCall over these addresses to the device's current stream."""
    driver = backend.driver
    with backend.active():
        function = kernels_of(backend).of_call(call)
        params = struct.pack(f"<{len(addresses)}Q{len(call.ints)}q", *addresses, *call.ints)
        size = ctypes.c_size_t(len(params))
        extra = (ctypes.c_void_p * 5)(BUFFER_POINTER, ctypes.cast(params, ctypes.c_void_p).value, BUFFER_SIZE,
                                      ctypes.addressof(size), PARAMS_END)
        stream = driver.current_stream(backend.index).handle
        said = _launcher(driver.launcher())(function, *call.grid, *call.block, call.shared_bytes, stream, None, extra)
        driver.check(said, call.name)

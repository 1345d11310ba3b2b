"""One launch at once, outside of any program: what a draw of random numbers is.

Kernels are compiled when they are first launched, and kept by their text; see code.py for the cache on disk.
"""
import ctypes
import struct

from ...base.locks import new_lock

_functions: dict = {}         # (driver, device's index, text, name) → its handle
_making = new_lock(finish=True)
_launchers: dict = {}         # driver → its launcher as a function
ARGUMENTS = (ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
BUFFER_POINTER, BUFFER_SIZE, END = 1, 2, 0       # CU_LAUNCH_PARAM_*: how `extra` says where the Params are


def launch(backend, call, addresses):
    """Hand a LaunchCall over these addresses to the device's current stream."""
    driver, index = backend.driver, backend.index
    with driver.on(index):
        key = driver, index, call.source, call.name
        function = _functions.get(key) or _function(backend, call, key)
        params = struct.pack(f"<{len(addresses)}Q{len(call.ints)}q", *addresses, *call.ints)
        size = ctypes.c_size_t(len(params))
        extra = (ctypes.c_void_p * 5)(BUFFER_POINTER, ctypes.cast(params, ctypes.c_void_p).value, BUFFER_SIZE,
                                      ctypes.addressof(size), END)
        run = _launchers.get(driver)
        if run is None:
            run = _launchers[driver] = ctypes.CFUNCTYPE(ctypes.c_int, *ARGUMENTS)(driver.launcher())
        stream = driver.current_stream(index).handle
        driver.check(run(function, *call.grid, *call.block, call.shared_bytes, stream, None, extra), call.name)


def _function(backend, call, key):
    with _making:
        if key not in _functions:
            driver = backend.driver
            image = driver.compile(call.source, backend.properties.architecture)
            _functions[key] = driver.function(driver.load(backend.index, image), call.name, call.shared_bytes)
        return _functions[key]

"""The process's one door to NVIDIA's software: its `Driver` (driver_interface.py), made when it is asked for.

That is a `CuPyDriver`. The tests have another one, over NumPy, which simulates devices; `use()` puts it in its place.
"""
from typing import Any

from ...base.locks import in_child, new_lock
from ..backend import DeviceFailed
from . import chain
from .cupy_driver import CuPyDriver
from .driver_interface import Driver

_driver: Any = None
_making = new_lock()


def current():
    """The process's driver, made at first use; raises chain.Broken, which says what is missing, where there is none."""
    global _driver
    if _driver is None:
        with _making:
            if _driver is None:
                chain.check()
                try:
                    made = CuPyDriver()
                except Exception as error:       # CuPy cannot be imported, or a device does not start
                    raise chain.failed(error) from error
                _driver = made
    return _driver


def absence():
    """None where CUDA can be used, else the chain.Broken that says why not. Starts nothing."""
    return None if _driver is not None else chain.broken()


def device_count():
    """How many devices there are; starts nothing."""
    return _driver.device_count() if is_made() else chain.device_count()


def is_made():
    """Whether there is a driver already, that can be used: a device was asked for, in this process."""
    return _driver is not None and not is_forked()


def is_forked():
    """Whether this process was forked from one that had a driver, so that CUDA cannot be used in it."""
    return isinstance(_driver, Forked)


class Forked(Driver):
    """What a driver is in a forked child: CUDA does not go on there, and a caller that needs it is told."""

    def __getattribute__(self, name):
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise DeviceFailed("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
                           "use the 'spawn' start method: torch.multiprocessing.set_start_method('spawn'); or use CUDA "
                           "in the processes alone, and not before they are forked")


@in_child
def _after_fork():
    if _driver is not None:
        _driver.__class__ = Forked               # for all who hold it: backends, programs, streams


def use(driver):
    """Make `driver` the process's; gives the one before, or None. For tests that simulate devices."""
    global _driver
    before, _driver = _driver, driver
    return before

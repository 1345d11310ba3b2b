"""Every switch of the system, to look at and to set while the program runs.

    torch.config                                    shows all of them
    torch.config.executor = "native"                sets one
    with torch.config.using(executor="reference"):  sets some for a while

Switches belong to the process, not to a thread. What they start as, their environment variables say (base/settings.py).

Note [Run before the switch]: what was recorded before `executor` is set, by any thread, runs first, as it would have.
So a block under `using` runs as it says, and what it leaves behind was made so.
"""
import contextlib as _contextlib
import os as _os
import sys as _sys
import types as _types

from .backends.cpu import threads as _threads
from .base import settings as _settings
from .trace.recording import record as _record


def _one_of(choices):
    def check(name, given):
        if given not in choices:
            raise ValueError(f"config.{name} = {given!r}: must be one of {', '.join(map(repr, choices))}")
        return given
    return check


def _integer(least=None):
    def check(name, given):
        if not isinstance(given, int) or isinstance(given, bool) or least is not None and given < least:
            more = "" if least is None else f" of at least {least}"
            raise ValueError(f"config.{name} = {given!r}: must be an integer{more}")
        return given
    return check


def _folder(name, given):
    try:
        text = _os.fspath(given)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise ValueError(f"config.{name} = {given!r}: must be the path of a folder, or '' to keep nothing")
    return text and _os.path.abspath(_os.path.expanduser(text))


def _processor(name, given):
    if not isinstance(given, str):
        raise ValueError(f"config.{name} = {given!r}: must be a string such as 'native'")
    _machine_code().check_processor(given)
    return given


def _machine_code():
    from .backends.cpu import machine_code  # what compiles, which the reference executor never needs
    return machine_code


def _forget_plans():
    from .trace.planning import plan
    plan.forget()


def _set_processor(given):
    try:
        _record.run_all()                      # see Note [Run before the switch]
    finally:
        _settings.cpu = given
        _machine_code().renew_processor()
        _forget_plans()


def _set_convolutions(given):
    try:
        _record.run_all()                      # see Note [Run before the switch]
    finally:
        _settings.convolutions = given
        _forget_plans()


def _set_executor(given):
    try:
        _record.run_all()                      # see Note [Run before the switch]
    finally:
        _settings.executor = given


def _set_objects(name):
    def put(given):
        setattr(_settings, name, given)
        _machine_code().renew_disk()
    return put


def _set_watch(given):
    from .watch import watching
    watching.switch(given)


def _finding_names(name, given):
    from .watch.finding import check_names
    if not isinstance(given, str):
        raise ValueError(f"config.{name} = {given!r}: must be names of findings, with commas between them")
    check_names(given.split(",") if given else ())
    return given


_CHECKS = {"executor": _one_of(_settings.EXECUTORS), "num_threads": _integer(1), "cpu": _processor,
           "convolutions": _one_of(_settings.CONVOLUTIONS), "tracebacks": _one_of(_settings.TRACEBACKS),
           "trace_instructions": _integer(1), "trace_bytes": _integer(1), "cache_bytes": _integer(),
           "object_dir": _folder, "object_bytes": _integer(0),
           "watch": _one_of(tuple(_settings.WATCHES.values())), "watch_ignore": _finding_names}
_READ = {"num_threads": _threads.get_num_threads}                    # those that another module holds
_WRITE = {"executor": _set_executor, "cpu": _set_processor, "convolutions": _set_convolutions,
          "num_threads": _threads.set_num_threads, "watch": _set_watch,
          "object_dir": _set_objects("object_dir"), "object_bytes": _set_objects("object_bytes")}


class Switch:
    """One switch: its `name`, its `value` now, the environment `variable` it starts from or None, what it `says`."""

    __slots__ = ("name", "value", "variable", "says")

    def __init__(self, name):
        self.name, self.value = name, getattr(_config, name)
        self.variable, self.says = _settings.SWITCHES[name]

    def __repr__(self):
        return f"{self.name} = {self.value!r} ({self.variable or 'no variable'}): {self.says}"


def switches():
    """All switches, each with its name, value, environment variable, and what it says."""
    return [Switch(name) for name in _settings.SWITCHES]


@_contextlib.contextmanager
def using(**changes):
    """Set switches for the duration of a `with` block, or of a function that this decorates.

    >>> with torch.config.using(executor="reference", num_threads=1):
    ...     torch.config.executor, torch.config.num_threads
    ('reference', 1)
    """
    changes = {name: _checked(name, given) for name, given in changes.items()}      # all of them, before any is set
    with _contextlib.ExitStack() as undo:
        for name, given in changes.items():
            undo.callback(setattr, _config, name, getattr(_config, name))
            setattr(_config, name, given)
        yield


def _checked(name, given):
    if name not in _CHECKS:
        raise _unknown(name)
    return _CHECKS[name](name, given)


def _unknown(name):
    return AttributeError(f"config has no switch {name!r}: it has {', '.join(_settings.SWITCHES)}")


class Config(_types.ModuleType):
    """This module: its switches are read and set like attributes."""

    def __getattr__(self, name):
        if name in _READ:
            return _READ[name]()
        if name in _settings.SWITCHES:
            return getattr(_settings, name)
        raise _unknown(name)

    def __setattr__(self, name, given):
        given = _checked(name, given)
        if name in _WRITE:
            _WRITE[name](given)
        else:
            setattr(_settings, name, given)

    def __dir__(self):
        return [*_settings.SWITCHES, "switches", "using"]

    def __repr__(self):
        found = switches()
        wide = max(len(repr(switch.value)) for switch in found) + 2
        lines = [f"{'switch':<20}{'value':<{wide}}environment variable"]
        for switch in found:
            lines.append(f"{switch.name:<20}{switch.value!r:<{wide}}{switch.variable or ''}".rstrip())
            lines.append(f"    {switch.says}")
        return "\n".join(lines)


_config = _sys.modules[__name__]
_config.__class__ = Config
if _settings.cpu != "native":                  # said at import, as with every other variable that makes no sense
    _processor("cpu", _settings.cpu)

"""The traceback of a refusal ends at the user's line, as that of a function written in C does.

Only what Python prints at the end of a program is shortened (`sys.excepthook`): the exception keeps its whole
`__traceback__`, so debuggers, test runners, loggers and `sys.last_traceback` see every frame. And only a refusal is: an
error that our own code raised by a `raise`. A mistake of ours (a KeyError deep inside) is shown with all it has.
"""
import sys
from types import TracebackType

from . import settings
from .core import source_of
from .errors import PACKAGE


def install():
    """Shorten what is printed at the end, unless the program prints it in another way."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show


def show(cls, error, traceback):
    """Print `error` as Python does, without our own frames where it is a refusal."""
    kept = []
    if settings.tracebacks == "short":
        for one in chain(error):
            kept.append((one, one.__traceback__))
            one.__traceback__ = shortened(one.__traceback__)
    try:
        sys.__excepthook__(cls, error, error.__traceback__ if kept else traceback)
    finally:
        for one, whole in kept:
            one.__traceback__ = whole


def chain(error):
    """`error`, and the errors it was raised from or during."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def shortened(traceback):
    """`traceback` without our frames; itself where it does not end with a `raise` of ours, or would be empty."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    whole = frames[0] if frames else None
    if not frames or not ours(frames[-1]) or not raises(frames[-1]):
        return whole
    made = None
    for one in reversed([one for one in frames if not ours(one)]):
        made = TracebackType(made, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return made or whole


def ours(one):
    return source_of(one.tb_frame.f_code.co_filename).startswith(PACKAGE)


def raises(one):
    """Whether the instruction that the frame ended with is a `raise`, and none of an `assert`."""
    from dis import opmap
    from linecache import getline
    code = one.tb_frame.f_code
    source = source_of(code.co_filename)
    if source != code.co_filename:                    # a compiled function, which has no instructions
        return getline(source, one.tb_lineno).lstrip().startswith("raise ")
    return code.co_code[one.tb_lasti] == opmap["RAISE_VARARGS"] and not \
        getline(code.co_filename, one.tb_lineno).lstrip().startswith("assert")

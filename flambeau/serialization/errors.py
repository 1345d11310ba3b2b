"""What is raised for a file that will not be loaded: damaged, hostile, or holding what is not known here.

PyTorch raises `RuntimeError` for a broken archive and `pickle.UnpicklingError` for refused contents. Programs catch one
or the other, so a FileError is both. Its message says which file, which part of it, and why; `file` and `record` have
the first two by themselves.
"""
import contextlib
from pickle import UnpicklingError


class FileError(RuntimeError, UnpicklingError):
    """A file that is damaged, or says things that a checkpoint has no business to say."""

    file = None                 # its name, once the message has it
    record = None               # the part that is at fault, where it is one

    def __init__(self, message="", record=None):
        super().__init__(message)
        if record is not None:
            self.record = record


class NotSupported(FileError, NotImplementedError):
    """A sound file that holds something Flambeau does not have."""


class EmptyFile(FileError, EOFError):
    """A file without a single byte, or one that ends before anything could be told about it."""


def shown(thing, limit=80, depth=2):
    """`thing` as text for a message. What comes out of a file may be long, deep, or full of control characters, and
    Python writes no number of many thousand digits: little of it is shown.
    """
    cls = type(thing)
    if cls in (str, bytes):
        text = ascii(thing[:limit])
        return text if len(text) <= limit and len(thing) <= limit else f"{text[:limit - 3]}..."
    if cls is int and thing.bit_length() > 200:
        return f"a number of {thing.bit_length()} bits"
    if cls in (tuple, list) and depth:
        parts = [shown(part, 20, depth - 1) for part in thing[:8]] + ["..."] * (len(thing) > 8)
        return f"({', '.join(parts)})"
    return repr(thing) if cls in (int, float, bool, type(None)) else f"a {cls.__name__}"


def bare(name):
    """A name out of a file as `shown`, without quotes."""
    return shown(name, 300)[1:-1]


class SourceChangeWarning(Warning):
    """PyTorch's warning of modules in a file whose source has changed since; nothing gives it here."""


@contextlib.contextmanager
def in_record(record):
    """A block whose FileErrors are about a part of the file."""
    try:
        yield
    except FileError as error:
        if error.record is None:
            error.record = record
            if record not in error.args[0]:
                error.args = (f"{record}: {error.args[0]}", *error.args[1:])
        raise


@contextlib.contextmanager
def naming(file):
    """A block whose FileErrors say which file they are about."""
    try:
        yield
    except FileError as error:
        if error.file is None:
            error.file = str(file)
            error.args = (f"{file}: {error.args[0]}", *error.args[1:])
        raise

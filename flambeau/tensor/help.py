"""What `help(torch.add)` shows: the docstring, the arguments that it does not name, an example, and the other forms.

`arguments.txt` says what arguments mean, and `examples.txt` has the example of each operation whose docstring has none.
Neither is read before it is asked for.
"""
import functools
import inspect
from fnmatch import fnmatchcase
from pathlib import Path

from .forms import function_name
from .tensor import Tensor


def page(op):
    """The text below the signature."""
    words, _, session = inspect.cleandoc(op.docstring or "").partition(">>> ")
    name = function_name(op)
    example = f">>> {session}" if session else examples().get(name.removeprefix("torch."), "")
    parts = [words.rstrip(), listed(op, words), example.rstrip(), forms(op)]
    return "\n\n".join(part for part in parts if part)


def listed(op, words):
    """A line for each argument that `words` do not name."""
    named = [name for name in inspect.signature(op).parameters if f"`{name}`" not in words]
    lines = [(name, meaning_of(op, name)) for name in named]
    return "\n".join(["Arguments:", *[f"    {name}: {meaning}" for name, meaning in lines if meaning]]
                     if any(meaning for _, meaning in lines) else [])


def meaning_of(op, argument):
    """What an argument means, in the words for this operation or for all; nothing if there are none."""
    own = f"{function_name(op).removeprefix('torch.')}.{argument}"
    return next((meaning for pattern, meaning in arguments() if pattern == argument or fnmatchcase(own, pattern)), "")


def forms(op):
    """The other ways to call it."""
    names = dict.fromkeys((op.__name__, *op.names.split()))
    methods = [name for name in names if getattr(Tensor.__dict__.get(name), "op", None) is op]
    writers = [name + "_" for name in names if getattr(Tensor.__dict__.get(name + "_"), "op", None) is op]
    called = [*(f"Tensor.{name}" for name in methods), *(f"Tensor.{name}, in place" for name in writers)]
    return f"Also {'; '.join(called)}." if called else ""


@functools.cache
def arguments():
    """(argument, or pattern of an operation's argument; its meaning), those for single operations first."""
    lines = [line for line in read("arguments.txt").splitlines() if line and not line.startswith("#")]
    pairs = [line.split(": ", 1) for line in lines]
    return sorted(pairs, key=lambda pair: "." not in pair[0])


@functools.cache
def examples():
    """The session of each operation, by name."""
    blocks = read("examples.txt").split("=== ")[1:]
    return {name: session for name, _, session in (block.partition("\n") for block in blocks)}


def read(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")

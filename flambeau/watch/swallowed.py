"""Errors of Flambeau's that a broad `except` swallowed: counted by the line that caught them, and said at exit.

When an error is raised, the lines that are running are noted, and nothing more. Who caught it is found out later, by
reading: of the innermost function that stands inside of a `try` whose `except` takes this class, or of a `with
suppress(…)`. It was swallowed if that takes every class (`except:`, `except Exception`, `except BaseException`) and
neither raises nor uses the error nor prints or logs a traceback. Where there is no source, nothing is said.
"""
import ast
import atexit
import collections
import linecache
import sys

from ..base.core import source_of
from ..base.errors import PACKAGE
from .finding import found, listens

FRAMES_NOTED = 40             # of those that are running, the innermost
ERRORS_NOTED = 200            # that are told apart
EVERY_ERROR = frozenset(("Exception", "BaseException"))
SPEAKS = frozenset(("exc_info", "print_exc", "format_exc", "print_exception", "format_exception", "exception",
                    "log_exception", "capture_exception", "last_exc", "fail", "skip"))
EXPECTS = frozenset(("raises", "assertRaises", "assertRaisesRegex", "warns"))       # a test asks for the error

_noted: collections.Counter = collections.Counter()          # Raised → how often
_trees: dict = {}             # file → the statements of it that catch


class RaisedAt(tuple):
    """(the error's classes, its first line, ((code, line), …) innermost first), which tells errors apart."""

    __slots__ = ()


def error_raised(error):
    """An error of ours is on its way to the program."""
    if getattr(error, "_noted", False) or not listens("swallowed-error") or not _is_ours(error):
        return
    error._noted = True
    frames, frame = [], sys._getframe(2)
    while frame is not None and len(frames) < FRAMES_NOTED:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    if not _noted:
        atexit.register(tell_swallowed)
    raised_at = RaisedAt((tuple(cls.__name__ for cls in type(error).__mro__), str(error).partition("\n")[0],
                          tuple(frames)))
    if raised_at in _noted or len(_noted) < ERRORS_NOTED:
        _noted[raised_at] += 1


def _is_ours(error):
    """Whether an error was raised in this package, or is about to be."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is None or source_of(at.tb_frame.f_code.co_filename).startswith(PACKAGE)


def tell_swallowed():
    """Say which lines caught errors and kept silent."""
    catchers: dict = {}
    for raised_at, count in _noted.copy().items():  # see Note [A copy to go through] in base/weakbag.py
        class_names, words, frames = raised_at
        caught = catcher(class_names, frames)
        if caught is not None:
            code, line, raised = caught
            key = code.co_filename, line
            total, examples, _, _ = catchers.get(key, (0, [], None, None))
            catchers[key] = total + count, [*examples, (f"{class_names[0]}: {words}", raised)], code, line
    _noted.clear()
    for total, examples, code, line in catchers.values():
        (words, raised), more = examples[0], len(examples) - 1
        found("swallowed-error", f"{total} {'errors were' if total > 1 else 'error was'} caught here, and nobody was "
              f"told: {words}" + (f" (and {more} other kinds)" if more else ""), _site(code, line),
              [("raised by", _site(*raised))] if raised else [], "what should have happened there did not",
              "catch the class of error that you expect, or print what was caught", raises=False)


def _site(code, line):
    return code, next((start for start, _, number in code.co_lines() if number == line), 0)


def catcher(class_names, frames):
    """(code, line of the handler, (code, line) of the program that raised) of a broad `except` that took an error."""
    raised = None
    for code, line in frames:
        ours = code.co_filename.startswith(PACKAGE)
        raised = raised or (None if ours else (code, line))
        for handler in handlers_around(code, line):
            if handler.takes(class_names):
                if handler.raises:
                    break                                     # perhaps another error: on with who takes that
                return (code, handler.line, raised) if handler.broad and not handler.speaks and not ours else None
    return None


class Catches:
    """One `except` (or `with suppress`) and the lines that it is in force for."""

    def __init__(self, first, last, line, names, broad, raises=False, speaks=False):
        self.first, self.last, self.line, self.names, self.broad = first, last, line, names, broad
        self.raises, self.speaks = raises, speaks

    def takes(self, class_names):
        """Whether it takes an error of these classes."""
        return self.broad or not self.names.isdisjoint(class_names)


def handlers_around(code, line):
    """The handlers that are in force at a line of a function, innermost first."""
    functions = _trees.get(code.co_filename)
    if functions is None:
        functions = _trees[code.co_filename] = _read(code.co_filename)
    here = [one for one in functions.get((code.co_name, code.co_firstlineno), ()) if one.first <= line <= one.last]
    return sorted(here, key=lambda one: (-one.first, one.line))


def _read(file):
    """{(name, first line) of a function: its handlers} of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict = {}
    stack = [(node, ("<module>", 1)) for node in tree.body]
    while stack:
        node, own = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *[one.lineno for one in node.decorator_list]])
            stack += [(child, (node.name, first)) for child in node.body]
            continue
        if isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            first, last = node.body[0].lineno, node.body[-1].end_lineno
            for handler in node.handlers:
                found.setdefault(own, []).append(_handler(handler, first, last))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if (one := _manager(item.context_expr, node)) is not None:
                    found.setdefault(own, []).append(one)
        stack += [(child, own) for child in ast.iter_child_nodes(node)]
    return found


def _names(expression):
    """The names of the classes that an `except` says."""
    parts = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    return frozenset(part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in parts)


def _handler(handler, first, last):
    names = _names(handler.type) if handler.type is not None else EVERY_ERROR
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    speaks = any(isinstance(node, ast.Name) and (node.id == handler.name or node.id in SPEAKS)
                 or isinstance(node, ast.Attribute) and node.attr in SPEAKS for node in inside)
    return Catches(first, last, handler.lineno, names, bool(names & EVERY_ERROR),
                   any(isinstance(node, ast.Raise) for node in inside), speaks)


def _manager(expression, node):
    """What a `with` takes: `suppress(…)`, or a test that asks for the error."""
    if not isinstance(expression, ast.Call):
        return None
    name = next(iter(_names(expression.func)))
    first, last = node.body[0].lineno, node.body[-1].end_lineno
    if name in EXPECTS:
        return Catches(first, last, node.lineno, EVERY_ERROR, True, speaks=True)
    if name == "suppress":
        names = frozenset().union(*[_names(given) for given in expression.args])
        return Catches(first, last, node.lineno, names, bool(names & EVERY_ERROR))
    return None

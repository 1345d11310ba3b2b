"""A finding is declared once, in FINDINGS of watch/finding.py. What it needs besides is missed here by name: a place
that tells it, what to do about it, its row in docs/watch.md and a program with the mistake. And what is to notice it
has to be in force, or nothing would be said."""
import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from flambeau.base.observers import Observer
from flambeau.watch import FINDINGS, noticed
from flambeau.watch.watching import AT_THE_END, OBSERVERS
from tests.sources import parsed
from tests.test_layers import PACKAGE

from .cases import CASES
from .every import ASKED, MODULES, TOLD, argument

ROWS = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (.*) \| (.*) \| (.*) ?\|$",
                  Path(__file__).parents[2].joinpath("docs", "watch.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_is_whole(name):
    assert TOLD[name], f'nothing in flambeau/watch says found("{name}", …)'
    silent = [call.lineno for call in TOLD[name] if argument(call, "fix", 5) is None]
    assert not silent, f'found("{name}", …) without a `fix`, which is what to do about it, in line {silent}'
    cases = [case for case in CASES if case.name == name]
    assert cases, f'tests/watch/cases.py has no case("{name}", …), a program with the mistake and one without it'
    row = next((row for row in ROWS if row[0] == name), None)
    assert row, f"the table of docs/watch.md has no row | `{name}` | free or full | what is found | in PyTorch | … |"
    always = "full" if all(case.full for case in cases) else "free"
    assert row[1] == always, f"docs/watch.md says that `{name}` is {row[1]}, and by tests/watch/cases.py it is {always}"


def test_the_page_has_the_findings_in_their_order():
    rows = [name for name, *_ in ROWS]
    assert rows == [name for name in FINDINGS if name in rows]


def test_what_is_told_is_declared():
    """Else it could not be silenced by its name."""
    unknown = (TOLD.keys() | ASKED | {case.name for case in CASES}) - FINDINGS.keys()
    assert not unknown, f"FINDINGS in watch/finding.py does not have {', '.join(sorted(unknown))}"


def own(module, kind):
    """What a module of `watch` makes itself, of the functions or classes that `kind` is true of."""
    held = vars(importlib.import_module(f"flambeau.{module}"))
    return [one for one in held.values() if kind(one) and one.__module__ == f"flambeau.{module}"]


def test_every_observer_is_in_force_during_a_watch():
    idle = [cls.__name__ for module in MODULES for cls in own(module, inspect.isclass)
            if issubclass(cls, Observer) and cls not in OBSERVERS]
    assert not idle, f"OBSERVERS in watch/watching.py does not have {', '.join(idle)}: nothing would be noticed by it"


def test_what_the_end_shows_is_looked_for_there():
    """A function that is given nothing and tells of something is one that only the end of a program can call."""
    telling = {node.name for tree in MODULES.values() for node in tree.body if isinstance(node, ast.FunctionDef)
               and not node.args.args and any(call in ast.walk(node) for calls in TOLD.values() for call in calls)}
    missing = telling - {function.__name__ for function in AT_THE_END}
    assert not missing, f"AT_THE_END in watch/watching.py does not have {', '.join(sorted(missing))}"


def test_what_lower_layers_tell_has_a_function():
    """`door.noticed("name", …)` calls the function of that name in watch/noticed.py, which may have imported it."""
    told = {node.args[0].value: f"{module}:{node.lineno}" for module, _, tree in parsed(PACKAGE)
            for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "door.noticed"}
    missing = [f"{name}, which {place} tells" for name, place in told.items()
               if not inspect.isfunction(getattr(noticed, name, None))]
    assert told and not missing, f"watch/noticed.py has no function {'; '.join(missing)}"

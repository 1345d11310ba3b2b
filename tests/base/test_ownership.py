"""Who holds what: every question in both of its answers, and interpreters that count otherwise are refused."""
import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.base import ownership

pytestmark = pytest.mark.pinned

PACKAGE = Path(ownership.__file__).parents[1]
CASES = {getattr(case, "__name__", "_gradient")[1:] + str(i): case for i, case in enumerate(ownership._CASES)}


@pytest.fixture
def recalibrated():
    """A counter may be broken here; it is as it was afterwards."""
    patch = pytest.MonkeyPatch()
    yield patch
    patch.undo()
    ownership.calibrate()


# --- the questions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_question_tells_free_from_held(case):
    """Also when it was asked so often that the interpreter runs other code for it than at import."""
    for _ in range(3000):
        kept = []
        assert not case(id) and case(kept.append)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("times", [2, 5])
def test_more_holders_are_held_too(case, times):
    kept = []
    assert case(lambda thing: kept.extend([thing] * times))


def test_others_counts_holders():
    things = [object() for _ in range(4)]
    more, table = [*things[1:]], {things[2]: 0, 1: things[3]}
    assert ownership.others(things) == [0, 1, 2, 2]
    assert ownership.others(tuple(things), 2) == [0, 1, 2, 2]
    del more, table
    assert ownership.others(things) == [0] * 4


def test_a_variable_anywhere_on_the_stack_counts():
    """Whether the interpreter lends the callee a reference or gives it one."""
    def asked(items, lent=None):
        return ownership.others(items)[0]

    def passed(items, thing):
        return asked(items, thing)

    def held(items):
        mine = items[0]
        return asked(items), mine

    def iterated(items):
        return [asked(items) for _ in items]

    def waiting(items):
        mine = items[0]
        yield asked(items)
        yield mine

    items = [object()]
    assert asked(items) == 0
    for _ in range(300):
        assert asked(items, items[0]) >= 1 and passed(items, items[0]) >= 1 and held(items)[0] >= 1
        assert iterated(items)[0] >= 1
        generator = waiting(items)
        assert next(generator) >= 1 and asked(items) >= 1
        del generator
        assert asked(items) == 0


def test_outside_arrays_are_seen_until_they_are_gone():
    array = np.arange(4.0)
    tensor = torch.from_numpy(array)
    assert tensor._storage.still_exported()
    (tensor + 1).tolist()
    assert tensor._storage.still_exported()
    del array
    assert not tensor._storage.still_exported()


# --- at import ------------------------------------------------------------------------------------------------------


BROKEN = {"one too few for what is held twice": lambda thing: sys.getrefcount(thing) - (sys.getrefcount(thing) > 4),
          "always the same": lambda thing: 3,
          "everything immortal": lambda thing: 2**32 - 1,
          "nothing above two": lambda thing: min(sys.getrefcount(thing), 2)}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_counter_that_does_not_count_is_refused(recalibrated, broken):
    recalibrated.setattr(ownership, "_count", broken)
    with pytest.raises(ImportError, match="references are counted in another way here"):
        ownership.calibrate()


def test_questions_that_disagree_with_the_list_are_refused(recalibrated):
    """As on an interpreter whose attributes do not own what they hold."""
    recalibrated.setattr(ownership, "count_at", lambda get, owner: 2)
    with pytest.raises(ImportError, match="storage: free where somebody holds it") as caught:
        ownership.calibrate()
    assert ownership.TESTED_PYTHONS in str(caught.value) and "results" not in str(caught.value)


def test_a_carrier_of_its_own_is_measured(recalibrated):
    """One reference more or less on the way to the counter, the same everywhere, is found out and allowed for."""
    recalibrated.setattr(ownership, "_count", lambda thing: sys.getrefcount(thing) + 5)
    ownership.calibrate()
    assert ownership.others([object()]) == [0]


def test_an_interpreter_without_counts_is_refused(recalibrated):
    recalibrated.setattr(ownership, "_count", None)
    with pytest.raises(ImportError, match="does not count references.*use CPython"):
        ownership.calibrate()


def test_free_threaded_builds_are_refused_at_import():
    program = ("import sys\nsys.version = '3.14.0 free-threading build (main, Oct 7 2025) [GCC]'\n"
               "try:\n    import flambeau\nexcept ImportError as error:\n    print(error)")
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith("Flambeau cannot run on this Python, cpython 3.14.0 free-threading build: this is a "
                           "free-threaded build") and "use the ordinary build" in said


def test_the_versions_that_are_tested_are_those_that_are_promised():
    root = PACKAGE.parent
    if not (root / "pyproject.toml").exists():
        pytest.skip("an installed package has no project around it")
    first, last = ownership.TESTED_PYTHONS.split(" to ")
    minors = range(int(first.split(".")[1]), int(last.split(".")[1]) + 1)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={first},<3.{minors[-1] + 1}"
    assert [c.rpartition(" ")[2] for c in project["classifiers"] if " 3." in c] == [f"3.{minor}" for minor in minors]
    assert " ".join(f"3.{minor}" for minor in minors) in (root / ".ci/pythons").read_text(encoding="utf-8")
    assert all(f"({ownership.TESTED_PYTHONS})" in (root / page).read_text(encoding="utf-8")
               for page in ("README.md", "CONTRIBUTING.md"))


def test_no_other_module_counts_references():
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = [f"{path.relative_to(PACKAGE)}:{node.lineno}" for path, text in texts.items() if "getrefcount" in text
             for node in ast.walk(ast.parse(text))
             if "getrefcount" in (getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "name", ""),
                                  getattr(node, "value", "") if isinstance(node, ast.Constant) else "")]
    assert found and {place.split(":")[0] for place in found} == {"base/counting.py"}, found
    counted = {str(path.relative_to(PACKAGE)): line.strip() for path, text in texts.items()
               for line in text.splitlines() if "counting import" in line}
    assert counted.pop("base/ownership.py").startswith("from .counting import count ")
    for line in counted.values():                                  # both give what is to be compared with RESULT
        assert set(line.partition("base.counting import ")[2].split(", ")) <= {"counts", "count_in"}, counted

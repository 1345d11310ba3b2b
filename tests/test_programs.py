"""The harness of tests/programs: what it takes for different; programs, kept numbers and requirements agree."""
import json
import re

import pytest

from tests.programs import TOLERANCE
from tests.programs.__main__ import HERE, KEPT, brief, differences, names
from tests.programs.facts import facts_of
from tests.programs.process import kept_form

ALL = names([])


def pins(which):
    lines = (HERE / f"requirements-{which}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line[:1].isalpha())


@pytest.mark.parametrize("name", sorted(path.stem for path in KEPT.glob("*.json")))
def test_numbers_are_kept_for_each_part_in_the_version_that_is_pinned(name):
    facts = facts_of(HERE / f"{name}.py")
    kept = json.loads((KEPT / f"{name}.json").read_text())
    assert list(kept["parts"]) == list(facts.parts) and facts.says and all(facts.parts.values())
    assert kept["made_with"]["torch"].partition("+")[0] == "2.13.0" and "flambeau" not in kept["made_with"]["torch"]
    pinned = pins("quick") if facts.quick else pins("quick") | pins("all") | pins("alone")
    for package in facts.packages:
        assert pinned.get(package) == kept["made_with"][package], f"{package} in the requirements"


def test_every_program_has_kept_numbers():
    assert ALL == sorted(path.stem for path in KEPT.glob("*.json"))


def test_pip_is_held_to_the_torch_that_is_provided():
    assert pins("quick")["torch"] == "2.13.0+flambeau"
    assert "-r requirements-quick.txt" in (HERE / "requirements-all.txt").read_text()


def test_what_is_equal():
    given = {"loss": 1.25, "tokens": [1, 2, 3], "text": "a", "none": None, "yes": True, "far": float("inf")}
    assert differences(kept_form(given), kept_form(given), TOLERANCE) == []
    array = kept_form(pytest.importorskip("numpy").linspace(0, 1, 100).reshape(4, 25))
    assert array["array"] == [4, 25] and len(array["some"]) == 24 and differences(array, array, 0.0) == []
    near = json.loads(json.dumps(array).replace("1.0]", "1.00001]"))
    assert near != array and differences(near, array, TOLERANCE) == []


@pytest.mark.parametrize("given, kept, says", [
    (1.0001, 1.0, "1.0001 instead of 1.0"),
    (1, 1.0, "1 instead of 1.0"),
    (True, 1, "True instead of 1"),
    ([1, 2], [1, 3], "2 instead of 3"),
    ([1, 2], [1, 2, 3], "instead of"),
    ("a", "b", "a instead of b"),
    ({"a": 1}, {"b": 1}, "['a'] instead of ['b']"),
    ([1.0, 2.0], [1.0, 2.1], "largest difference 0.1"),
    ([1.0, "nan"], [1.0, 2.0], "nan instead of 2.0"),
    ({"array": [2], "is": [1.0, 2.0]}, {"array": [2, 1], "is": [1.0, 2.0]}, "shape [2] instead of [2, 1]"),
    ({"array": [9], "some": [1.0], "root_mean_square": 2.0}, {"array": [9], "some": [1.0], "root_mean_square": 1.0},
     "root_mean_square: 2.0 instead of 1.0"),
])
def test_what_differs(given, kept, says):
    found = differences({"x": given}, {"x": kept}, TOLERANCE)
    assert len(found) == 1 and says in found[0] and found[0].startswith("x")


def test_rounding_beside_large_numbers_is_no_difference():
    kept = {"weight": 1.0, "key": 1e-9}
    assert differences({"weight": 1.0, "key": 3e-9}, kept, TOLERANCE) == []
    assert differences({"weight": 1.0, "key": 3e-4}, kept, TOLERANCE) != []


def test_a_result_that_cannot_be_kept_is_refused():
    with pytest.raises(TypeError, match="not set"):
        kept_form({"x": {1}})


def test_errors_in_brief():
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\nDuring …\n\n' \
           'Traceback (most recent call last):\n  File "b.py", line 2, in g\n    h()\nValueError: two'
    assert brief(text) == 'File "b.py", line 2, in g\nKeyError: 1\nValueError: two'
    assert brief("x: 1 instead of 2") == "x: 1 instead of 2"


def test_every_program_is_named_in_no_other_way():
    for name in ALL:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name

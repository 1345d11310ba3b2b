"""For each finding: the mistake is found, at its line and nowhere else; its twin is silent. And in a strict watch the
mistake is an error."""
import pytest

import flambeau as torch

from .cases import CASES
from .conftest import marked
from .every import WARNED_OF

each_case = pytest.mark.parametrize("case", CASES, ids=[f"{case.name}-{n}" for n, case in enumerate(CASES)])


@each_case
def test_the_mistake_is_found_at_its_line(run, case):
    found = run(case.mistake, case.full)
    assert [(f.name, f.lineno) for f in found] == [(case.name, marked(case.mistake, "found"))], [str(f) for f in found]
    assert found[0].line == f"train.py:{found[0].lineno}" and found[0].fix


@each_case
def test_the_twin_is_silent(run, case):
    assert [str(f) for f in run(case.twin, full=True)] == []


@each_case
def test_strict_makes_it_an_error_and_ignoring_silences_it(run, case):
    if case.name not in WARNED_OF:
        with pytest.raises(torch.watch.FindingError) as caught:
            run(case.mistake, full=True, strict=True)
        assert caught.value.finding.name == case.name
    assert run(case.mistake, full=True, strict=True, ignore=[case.name]) == []

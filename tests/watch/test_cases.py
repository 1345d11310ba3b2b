"""For each finding: the mistake is found, at its line and nowhere else; its twin is silent. And in a strict watch the
mistake is an error."""
import pytest

import flambeau as torch

from .cases import CASES
from .conftest import marked

IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize("name, full, mistake, twin", CASES, ids=IDS)
def test_the_mistake_is_found_at_its_line(run, name, full, mistake, twin):
    found = run(mistake, full)
    assert [(f.name, f.lineno) for f in found] == [(name, marked(mistake, "found"))], [str(f) for f in found]
    assert found[0].line == f"train.py:{found[0].lineno}" and found[0].fix


@pytest.mark.parametrize("name, full, mistake, twin", CASES, ids=IDS)
def test_the_twin_is_silent(run, name, full, mistake, twin):
    assert [str(f) for f in run(twin, full=True)] == []


@pytest.mark.parametrize("name, full, mistake, twin", CASES, ids=IDS)
def test_strict_makes_it_an_error_and_ignoring_silences_it(run, name, full, mistake, twin):
    if name != "swallowed-error":                        # which is known when the program ends
        with pytest.raises(torch.watch.FindingError) as caught:
            run(mistake, full=True, strict=True)
        assert caught.value.finding.name == name
    assert run(mistake, full=True, strict=True, ignore=[name]) == []

"""The frame of `flambeau.watch`: a finding is said once for its line, is an error in a strict watch, and is silenced by
name."""
import os
import subprocess
import sys
import warnings

import pytest

import flambeau as torch
from flambeau.watch.finding import found
from tests.patience import PATIENCE

watch = torch.watch


def site():
    """The line that calls."""
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


def notice(name="broadcast", at=None):
    return found(name, "a result is larger", at or site(), [("made at", site())], "16 numbers", "unsqueeze one")


def test_it_is_said_once_for_a_line():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            at = site()
            notice(at=at)
        here = sys._getframe().f_lineno - 2
        notice("old-graph", at)                                        # another finding of the same line
    first, second = (w.message for w in said)
    assert (said[0].filename, said[0].lineno, said[0].category) == (__file__, here, watch.FindingWarning)
    assert str(first) == (f"a result is larger [broadcast]\n  at test_finding.py:{here}: at = site()\n"
                          f"  and made at test_finding.py:{notice.__code__.co_firstlineno + 1}\n  cost: 16 numbers\n"
                          "  fix: unsqueeze one")
    assert "[old-graph]" in str(second)
    kept = watch.findings()
    assert [(f.name, f.line, f.count) for f in kept] == [("broadcast", f"test_finding.py:{here}", 3),
                                                         ("old-graph", f"test_finding.py:{here}", 1)]
    assert kept[0].source == "at = site()" and (kept[0].cost, kept[0].fix) == ("16 numbers", "unsqueeze one")


def test_strict_makes_it_an_error_every_time():
    at = site()
    with watch(strict=True):
        for _ in range(2):
            with pytest.raises(watch.FindingError, match="a result is larger") as caught:
                notice(at=at)
            assert caught.value.finding.name == "broadcast"
    with pytest.warns(watch.FindingWarning):
        notice("old-graph", at)


@pytest.mark.parametrize("silent", [
    lambda: watch(ignore=["broadcast"]), lambda: watch(ignore="broadcast", strict=True),
    lambda: watch.allow("broadcast"), lambda: watch.allow("old-graph", "broadcast"),
    lambda: torch.config.using(watch_ignore="old-graph,broadcast"), lambda: torch.config.using(watch="off")])
def test_silenced_by_name(silent):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with silent():
            assert notice() is None
    with pytest.warns(watch.FindingWarning):
        notice()


def test_allow_decorates_and_nests():
    quiet = watch.allow("broadcast")

    @quiet
    def meant():
        with quiet, quiet:
            notice()
        return notice()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert meant() is None
        assert meant.__name__ == "meant"


@pytest.mark.parametrize("wrong", [lambda: watch(ignore=["bradcast"]), lambda: watch.allow("bradcast"),
                                   lambda: setattr(torch.config, "watch_ignore", "broadcast,bradcast")])
def test_a_name_that_does_not_exist(wrong):
    with pytest.raises(ValueError, match="'bradcast' is no finding of watch: the names are stale-gradients, old-graph"):
        wrong()


def test_what_is_given_without_its_name():
    with pytest.raises(TypeError, match=r"given 'strict': it takes watch\(strict=True\)"):
        watch("strict")


def test_start_and_stop():
    before = torch.config.watch
    try:
        watch.start(strict=True)
        assert torch.config.watch == "strict"
        watch.start()
        assert torch.config.watch == "full"
        with pytest.warns(watch.FindingWarning):
            notice()
        watch.stop()
        assert torch.config.watch == "free"
    finally:
        torch.config.watch = before


@pytest.mark.parametrize("variables, code, ends", [
    ({"FLAMBEAU_WATCH": "strict"}, "assert torch.config.watch == 'strict'", ""),
    ({"FLAMBEAU_WATCH": "0"}, "assert torch.config.watch == 'off'", ""),
    ({"FLAMBEAU_WATCH": "loud"}, "", "ValueError: FLAMBEAU_WATCH='loud': must be 0, 1 or strict"),
    ({"FLAMBEAU_WATCH_IGNORE": "bradcast"}, "", "'bradcast' is no finding of watch"),
    ({"FLAMBEAU_WATCH_IGNORE": "broadcast"}, "import sys; assert torch.config.watch == 'free'", ""),
    ({}, "import sys; assert 'flambeau.watch' not in sys.modules", "")])
def test_variables(variables, code, ends):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_WATCH")}
    done = subprocess.run([sys.executable, "-c", f"import flambeau as torch; {code}"], capture_output=True, text=True,
                          env={**environment, **variables}, timeout=PATIENCE)
    assert ends in done.stderr and bool(ends) == bool(done.returncode), done.stderr

"""How much of a long table of cases is tried: all of it with `FLAMBEAU_TEST_THOROUGH=1`, as `make thorough` does.

`make test` has to run in minutes on two cores, so there the longest tables give every so manieth case.
"""
import os

import pytest

THOROUGH = bool(os.environ.get("FLAMBEAU_TEST_THOROUGH"))
takes_seconds = pytest.mark.skipif(not THOROUGH, reason="takes seconds: FLAMBEAU_TEST_THOROUGH=1 runs it")


def sample(cases, step, thorough_step=1):
    """Every `step`th of the cases; or all of them, or where those would take hours, every `thorough_step`th."""
    return list(cases)[::thorough_step if THOROUGH else step]


def share(cases, number, shares):
    """The share `number` of the cases, dealt out into so many `shares`; or all of them."""
    cases = list(cases)
    return cases if THOROUGH else cases[number % shares::shares]

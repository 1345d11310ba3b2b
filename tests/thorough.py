"""How much of a long table of cases is tried: all of it with `FLAMBEAU_TEST_THOROUGH=1`, as `make thorough` does.

The suite has to run in minutes on two cores, three times over (with each executor pinned as well), so the longest
tables give it every so manieth case.
"""
import os

THOROUGH = bool(os.environ.get("FLAMBEAU_TEST_THOROUGH"))


def sample(cases, step):
    """Every `step`th of the cases, or all of them."""
    cases = list(cases)
    return cases if THOROUGH else cases[::step]

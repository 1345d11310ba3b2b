"""A few forks, interrupts and memory limits; `python -m tests.stress` does many."""

import os
import signal

import pytest

from tests import stress


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")                    # Python's own, of forks beside threads
def test_children_of_a_program_with_threads():
    assert stress.forks(8) == {"right": 8}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_interrupts_lose_nothing():
    outcomes, swallowed = stress.interrupts(60)
    assert not swallowed
    assert outcomes == {"reached the program": 60, "swallowed": 0, "bytes lost": 0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("kind, count", [("fork", 80), ("load", 12)])
def test_interrupts_during_forks_reach_the_program(kind, count):
    assert stress.interrupted(kind, count) == f"{count} caught, 0 lost, 0 threads hang, []"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_limits_of_memory_end_in_an_error():
    found = stress.limits(4)
    assert len(found) == 4
    for (when, megabytes), words in found.items():         # once there, we say what is missing, whoever is refused it
        known = ("ended, ", "could not begin: ") if when == "before the import" else "ended, "
        assert words.startswith(known), (when, megabytes, words)
    assert any(words.startswith("ended, 12 programs ran") for words in found.values())

"""torch.utils.benchmark: a statement that is timed is computed, every time, and the words are those of its times."""
import pytest

import flambeau as torch
from flambeau.base.observers import Observer, observing
from flambeau.utils.benchmark import Compare, Language, Measurement, TaskSpec, Timer, select_unit, trim_sigfig
from flambeau.utils.benchmark.utils.timer import looked_at

pytestmark = pytest.mark.pinned


class Runs(Observer):
    def __init__(self):
        self.names = []

    def ran(self, run):
        self.names += [instruction.entry.op.__name__ for instruction in run.instructions]


@pytest.mark.parametrize("stmt", ["x.exp()", "y = x.exp()", "for _ in range(1):\n    y = x.exp()",
                                  "x.exp(); x.exp().sum()", "with torch.no_grad():\n    z = x.exp()"])
def test_every_run_of_a_statement_is_computed(stmt):
    x = torch.ones(50)
    torch.cpu.synchronize()
    with torch.config.using(executor="reference"), observing(Runs()) as runs:
        made = Timer(stmt, globals={"x": x}).timeit(10)
    warm = 2                                                 # and a few to warm up
    assert runs.names.count("exp") == (10 + warm) * stmt.count("exp") and made.number_per_run == 10
    assert made.stmt == stmt


def test_what_is_looked_at():
    assert looked_at("x + 1") == "_result_0 = x + 1\n_compute_recorded()"
    assert looked_at("y = x") == "y = x\n_compute_recorded()"
    assert looked_at("x +") == "x +" and looked_at("") == ""
    with pytest.raises(SyntaxError):
        Timer("x +").timeit(1)


def test_measurements():
    timer = Timer("x * 2", "x = torch.ones(10)", label="twice", sub_label="ten", description="here", num_threads=1)
    threads = torch.get_num_threads()
    calls = []
    made = timer.blocked_autorange(min_run_time=0.01, callback=lambda number, taken: calls.append((number, taken)))
    assert len(calls) == len(made.raw_times) and calls[0][0] == made.number_per_run
    assert made.times == [time / made.number_per_run for time in made.raw_times] and 0 < made.median < 0.01
    assert torch.get_num_threads() == threads
    lines = repr(made).splitlines()
    assert "Measurement object at" in lines[0] and lines[1] == "twice: ten" and lines[2] == "here"
    assert timer.adaptive_autorange(max_run_time=0.05).raw_times
    assert Measurement.merge([made, made])[0].times == made.times * 2


def test_units_and_figures():
    assert [select_unit(t)[0] for t in (5e-10, 3e-8, 3e-5, 0.03, 3, 300)] == ["s", "ns", "us", "ms", "s", "s"]
    assert [trim_sigfig(3.14159, n) for n in (1, 2, 4)] == pytest.approx([3, 3.1, 3.142])
    with pytest.raises(AssertionError, match="must be an integer"):
        trim_sigfig(1.0, 1.5)


def test_what_cannot_be_timed():
    with pytest.raises(ValueError, match="only a `str` stmt"):
        Timer(lambda: 1)
    with pytest.raises(NotImplementedError, match="in Python"):
        Timer("x", language=Language.CPP)
    with pytest.raises(ValueError, match="Invalid language `fortran`"):
        Timer("x", language="fortran")
    with pytest.raises(ValueError, match="global_setup is C"):
        Timer("x", global_setup="int x;")
    with pytest.raises(NotImplementedError, match="valgrind"):
        Timer("1").collect_callgrind()
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        Compare([3])
    with pytest.raises(NameError):
        Timer("nothing_of_that_name").timeit(1)
    assert TaskSpec("a", "pass").title == "a"

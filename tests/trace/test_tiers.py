"""What is planned when: by sizes, and by how often and how soon something came again. See trace/planning/tiers.py."""
import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.base import observers, settings
from flambeau.trace.planning import plan, tiers
from flambeau.trace.recording.record import current

pytestmark = pytest.mark.pinned


@pytest.fixture(autouse=True)
def automatic(monkeypatch):
    """The rule by which executors are chosen, with nothing seen before."""
    current().run()
    plan.forget()
    monkeypatch.setattr(plan, "_sightings", tiers.Sightings())
    monkeypatch.setattr(settings, "executor", "auto")
    yield
    current().run()
    plan.forget()


@pytest.fixture
def planned():
    """The lengths of the traces that were planned since."""
    lengths = []

    class Planned(observers.Observer):
        def planned(self, planning):
            lengths.append(len(planning.instructions))

    with observers.observing(Planned()):
        yield lengths


def trainer(width):
    """A step of training over a batch of so many rows; gives the loss."""
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    torch.cpu.synchronize()                                 # the parameters are there

    def step(rows):
        loss = net(torch.ones(rows, width)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def new_plans(planned, step, *given):
    """How many of a trace's length at least that trains were made in a step."""
    before = len(planned)
    step(*given)
    return sum(length >= 8 for length in planned[before:])


def test_the_body_of_a_loop_is_planned_when_it_comes_again(planned):
    step = trainer(6)
    assert [new_plans(planned, step, 5) for _ in range(6)] == [0, 1, 0, 0, 0, 0]


def test_a_long_body_is_not_waited_for_any_longer(planned):
    def long(x):
        for _ in range(300):
            x = (x + 1).abs()
        return x.sum().item()

    x = torch.arange(7.0)
    torch.cpu.synchronize()
    assert [new_plans(planned, long, x) for _ in range(4)] == [0, 1, 0, 0]


def test_steps_of_ever_other_sizes_are_no_longer_planned_at_first_sight(planned, monkeypatch):
    monkeypatch.setattr(tiers, "MIN_BYTES", 0)
    monkeypatch.setattr(tiers, "TRAINING_BYTES_PER_INSTRUCTION", 0)
    step = trainer(6)
    made = [new_plans(planned, step, rows) for rows in range(3, 15)]
    assert made == [1] * tiers.MAX_BETS + [0] * (12 - tiers.MAX_BETS)
    assert [new_plans(planned, step, 14) for _ in range(2)] == [0, 1]       # a third time: others may be worth a bet
    assert [new_plans(planned, step, rows) for rows in range(20, 26)] == [1] * tiers.MAX_BETS + [0, 0]


def test_steps_that_come_twice_are_no_longer_planned_at_the_second_sight(planned):
    one, other = trainer(6), trainer(6)
    made = [new_plans(planned, step, rows) for rows in range(3, 12) for step in (one, other)]
    assert made == [0, 1] * tiers.MAX_BETS + [0] * (18 - 2 * tiers.MAX_BETS)


def test_a_bet_that_was_won_lets_the_next_be_made(planned, monkeypatch):
    monkeypatch.setattr(tiers, "MIN_BYTES", 0)
    monkeypatch.setattr(tiers, "TRAINING_BYTES_PER_INSTRUCTION", 0)
    step = trainer(6)
    for rows in range(3, 3 + 2 * tiers.MAX_BETS):
        assert new_plans(planned, step, rows) == 1
        plan._sightings.count(FakeTrace(10, trains=True), None, True)             # as a run by a plan says


class FakeTrace:
    """As much of a trace as the rules ask about."""

    def __init__(self, instructions, nbytes=0, trains=False):
        self.code, self.bytes, self.trains = [FakeInstruction()] * instructions, nbytes, trains


class FakeInstruction:
    class entry:
        compiles = False


def sights_until_planned(sightings, length, between, trains=False):
    """How often a trace is run without a plan when so many instructions of others run between its sightings."""
    trace = FakeTrace(length)
    for times in range(20):
        sightings.count(trace, sightings.get("key"), False)
        if tiers.worth_a_plan(trace, sightings.get("key"), sightings):
            return times
        sightings.note("key")
        sightings.count(FakeTrace(between, trains=trains), None, False)


@pytest.mark.parametrize("length, between, trains, expected", [
    (100, 0, False, 1), (100, 900, False, 1), (100, 50_000, False, tiers.RARE_SIGHTINGS),
    (5, 50_000, True, 1),                                   # it comes with every step of an optimizer
    (5, 500, False, 1), (5, 600, False, tiers.RARE_SIGHTINGS)])
def test_what_comes_again_after_much_else_is_run_more_often_before(length, between, trains, expected):
    assert sights_until_planned(tiers.Sightings(), length, between, trains) == expected


@pytest.mark.parametrize("turns, expected", [
    ([1], [True]), ([3], [False]), ([3, 3], [False, True]), ([3, 5, 2], [False, False, False]),
    ([3, 5, 5], [False, False, True]), ([0, 2], [True, False]), ([tiers.MAX_TURNS + 1] * 2, [False, False])])
def test_what_comes_again_at_every_step_of_an_optimizer_is_a_loop(turns, expected):
    """`turns` runs of others that train lie between the sightings of a trace that does not."""
    sightings, trace, found = tiers.Sightings(), FakeTrace(100), []
    for count in turns:
        sightings.note("key")
        for _ in range(count):
            sightings.count(FakeTrace(50, trains=True), None, False)
        found.append(tiers.worth_a_plan(trace, sightings["key"], sightings))
    assert found == expected


@pytest.mark.parametrize("nbytes, trains, expected", [
    (1 << 19, False, False), (1 << 23, False, True), ((1 << 23) - 1, False, False),
    ((1 << 20) - 1, True, False), (1 << 20, True, True)])
def test_much_data_is_planned_at_first_sight(nbytes, trains, expected):
    assert tiers.worth_a_plan(FakeTrace(16, nbytes, trains), None, tiers.Sightings()) is expected


@pytest.mark.parametrize("count, runs", [(1, tiers.EXPECTED_RUNS_ALONE), (2, tiers.EXPECTED_RUNS)])
def test_a_look_waits_longer_for_what_will_come_again(count, runs, monkeypatch):
    monkeypatch.setattr(tiers, "processors", lambda: count)
    monkeypatch.setattr(tiers, "quota", lambda: 4)
    sightings, once, trains = tiers.Sightings(), FakeTrace(20, 1000), FakeTrace(20, 1000, trains=True)
    assert tiers.time_to_compile(once, None) == 20 * tiers.INSTRUCTION_NANOSECONDS + 1000 * tiers.BYTE_NANOSECONDS
    sightings.note("key")
    for longer in (tiers.time_to_compile(once, sightings["key"]), tiers.time_to_compile(trains, None)):
        assert longer == runs * tiers.time_to_compile(once, None)

import pytest


@pytest.fixture(autouse=True)
def no_runs_by_themselves(monkeypatch):
    """A long step runs when it ends; tests that ask whether it looked at something must not see that."""
    monkeypatch.setattr("flambeau.optim.optimizer.INSTRUCTIONS_WORTH_A_RUN", 1 << 60)

"""What the tests of mixed precision share."""
import pytest

from flambeau.backends.cuda import driver


@pytest.fixture
def no_cuda(monkeypatch):
    """A machine without a GPU, whatever this one has."""
    monkeypatch.setattr(driver, "absence", lambda: "it is not looked for here")

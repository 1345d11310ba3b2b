"""What holds for the tests of traces."""
import pytest

from flambeau.ops import order
from flambeau.trace.planning import plan as planning


@pytest.fixture
def sort_without_kernel(monkeypatch):
    """Sorting as an operation that no kernel does, so that the reference does it in the middle of a plan."""
    planning.forget()
    monkeypatch.setattr(order, "in_rows", lambda *_: NotImplemented)
    yield
    planning.forget()

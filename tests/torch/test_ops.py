"""PyTorch's own samples through both libraries, one test per (operation, dtype, check). See checks.py for the checks,
gaps.txt for what is known to differ, and `python -m tests.torch.report --op NAME` for the quick way to look at one."""
import pytest

pytest.importorskip("torch")

from tests.torch.checks import CHECKS, case_id, everything, gap, read_gaps, run

GAPS = read_gaps()


def cases(check):
    """One parameter per (op, dtype), expected to fail where gaps.txt says so."""
    found = []
    for op, dtype in everything(check):
        reason = gap(GAPS, check, op, dtype)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason is not None else []
        found.append(pytest.param(op, dtype, id=case_id(op, dtype), marks=marks))
    return found


def holds(check, op, dtype):
    outcome = run(check, op, dtype)
    if outcome.failures:
        lines = [f"{len(outcome.failures)} of {outcome.ran} cases fail"]
        lines += [f"  {label}\n    {type(error).__name__}: {error}" for label, error in outcome.failures[:3]]
        raise AssertionError("\n".join(lines)) from outcome.failures[0][1]
    if not outcome.ran:
        pytest.skip("no samples on this device")


@pytest.mark.parametrize("op, dtype", cases("values"))
def test_values(op, dtype):
    holds("values", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("variants"))
def test_variants(op, dtype):
    holds("variants", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("out"))
def test_out(op, dtype):
    holds("out", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("noncontiguous"))
def test_noncontiguous(op, dtype):
    holds("noncontiguous", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("gradients"))
def test_gradients(op, dtype):
    holds("gradients", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("second_gradients"))
def test_second_gradients(op, dtype):
    holds("second_gradients", op, dtype)


@pytest.mark.parametrize("op, dtype", cases("errors"))
def test_errors(op, dtype):
    holds("errors", op, dtype)


def test_gaps_name_tests():
    known = {(f"test_{check}", name) for check in CHECKS for op, dtype in everything(check)
             for name in (op.full_name, case_id(op, dtype))}
    assert not set(GAPS) - known

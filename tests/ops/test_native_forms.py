"""What has no native form on the CPU: neither a body nor a function of the library. The list says why, one line each.

A line goes when the operation gets a form, and a new operation without one needs a line: so the list grows only where
somebody has written down the reason.
"""
from pathlib import Path

from ..test_ops import OPS

LIST = Path(__file__).with_name("no_native_form.txt")
REASONS = dict(line.split(None, 1) for line in LIST.read_text().splitlines() if line and not line.startswith("#"))


def test_the_list_is_the_truth():
    without = {name for name, op in OPS.items() if hasattr(op, "ref") and not hasattr(op, "body")}
    assert without - set(REASONS) == set(), "these have no native form: give them one, or a line with the reason"
    assert set(REASONS) - without == set(), "these have a native form now: their lines must go"


def test_the_list_is_in_order_and_has_reasons():
    names = [line.split()[0] for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    assert names == sorted(set(names))
    assert all(len(reason) > 10 for reason in REASONS.values())

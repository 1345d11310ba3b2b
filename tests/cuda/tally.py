"""A plugin of pytest for a machine whose time is short: `-p tests.cuda.tally`, with FLAMBEAU_TEST_TALLY naming a file.

Every outcome is a line of that file as soon as it is known, so that a run that is stopped has told what it found. After
a failure the GPU is asked whether it still answers: one wrong access, and a process has no GPU any more, so it ends,
and xdist starts another in its place for the tests that are left.
"""
import json
import os
import sys


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        write(report, report.when, report.duration)


def pytest_collectreport(report):
    if report.failed:
        write(report, "collect", 0.0)


def write(report, when, seconds):
    path = os.environ.get("FLAMBEAU_TEST_TALLY")
    if not path or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    words = ""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        words = crash.message if crash is not None else str(report.longrepr)
    elif report.skipped:
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    line = {"test": report.nodeid, "outcome": report.outcome, "when": when, "seconds": round(seconds, 3),
            "words": words[:1500]}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def answers():
    """Whether the GPU of this process still does what it is asked."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        import flambeau
        if flambeau.cuda.is_available():
            flambeau.cuda.synchronize()
    except Exception as error:
        print(f"the GPU does not answer any more: {error}", file=sys.stderr)
        return False
    return True


def pytest_runtest_makereport(item, call):
    if call.excinfo is not None and os.environ.get("PYTEST_XDIST_WORKER") and call.when == "call":
        if not call.excinfo.errisinstance((AssertionError, TypeError, NotImplementedError)) and not answers():
            os._exit(3)

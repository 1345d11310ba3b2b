"""Running a small program under `watch`: what was found, by name and line."""
import sys
import warnings

import pytest

import flambeau as torch
from flambeau.watch import data


@pytest.fixture(autouse=True)
def nothing_found():
    """Start and end with nothing found; errors of other tests that wait for the exit are settled before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.watch.settle()
    torch.watch.clear()
    yield
    torch.watch.clear()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(source, full=…, **watch's arguments): the findings of a program, which stands in a file of its own."""
    monkeypatch.setattr(data, "STARVED_SECONDS", 0.2)     # an epoch of an example is short

    def run(source, full=False, **options):
        torch.watch.clear()
        torch.manual_seed(0)                              # whatever ran before
        path = tmp_path / "train.py"
        path.write_text(source)
        sys.modules["linecache"].checkcache(str(path))
        names = {"__name__": "__main__", "__file__": str(path), "torch": torch}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            code = compile(source, str(path), "exec")
            if full:
                with torch.watch(**options):
                    exec(code, names)
                    torch.watch.settle()
            else:
                exec(code, names)
                torch.watch.settle()
        run.warnings = said
        return torch.watch.findings()
    return run


def marked(source, mark):
    """The number of the line that ends with `# mark`."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if line.endswith(f"# {mark}"))

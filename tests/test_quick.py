"""What `make quick` chooses: see tests/quick.py."""
import subprocess

import pytest

from . import quick

TESTS = {"tests/trace/test_plans.py": {"trace.planning.plan", "tests/trace/cuts.py"}, "tests/trace/test_fuse.py": set(),
         "tests/test_docs.py": set(), "tests/data/test_loader.py": {"utils.data"}}
EDGES = {("trace.planning.fuse", "trace.planning.plan")}


@pytest.mark.parametrize("files, expected", [
    (["flambeau/trace/planning/plan.py"], {"tests/trace/test_plans.py", "tests/trace/test_fuse.py"}),
    (["flambeau/trace/planning/fuse.py"], {"tests/trace/test_fuse.py"}),
    (["flambeau/utils/data/__init__.py"], {"tests/data/test_loader.py"}),
    (["tests/data/test_loader.py"], {"tests/data/test_loader.py"}),
    (["tests/trace/cuts.py"], {"tests/trace/test_plans.py"}),
    (["docs/native.md"], {"tests/test_docs.py"}),
    (["Makefile"], set()),
])
def test_what_a_change_touches(files, expected):
    assert set(quick.chosen(files, EDGES, TESTS)) - {*quick.ALWAYS} == expected


def test_every_test_is_known_with_what_it_imports():
    found = quick.test_files()
    assert {*quick.ALWAYS} <= found.keys() and not any(file.startswith(quick.NEED_MORE) for file in found)
    assert "backends.cpu.machine_code" in found["tests/backends/test_cpu.py"]
    assert "tests/trace/cuts.py" in found["tests/trace/test_segments.py"]


def test_what_git_says_has_changed(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True,
                       capture_output=True)
    git("init", "-b", "main")
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-m", name)
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    assert quick.changed_files("main") == ["two"]               # nothing since: the last commit
    (tmp_path / "three").touch()
    (tmp_path / "one").write_text("1")
    assert quick.changed_files("main") == ["one", "three"]
    git("checkout", "-b", "side")
    git("add", "three")
    git("commit", "-m", "three")
    assert quick.changed_files("main") == ["one", "three"]

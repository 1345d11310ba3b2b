"""A report holds what happened, is one page that asks nobody for anything, and is written however the run ends."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.base import observers
from tests.patience import PATIENCE
from tests.thorough import sample

pytestmark = pytest.mark.pinned       # memory and kernels are seen of native runs
ROOT = Path(torch.__file__).parents[1]


def data_of(path):
    text = Path(path).read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)[1])


def trained(path, rounds=8, log=False, **options):
    """A report about a small training."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    losses = []
    with torch.report(path, **options) as run:
        for step in range(rounds):
            loss = torch.nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if log:
                run.log(score=step / 2, other=torch.tensor(1.0))
    return run, losses


def test_a_training(tmp_path):
    run, losses = trained(tmp_path / "run.html", log=True, warmup=1, steps=3, title="of </script> & <b>")
    found = data_of(run.path)
    assert found["title"] == "of </script> & <b>" and found["steps"] == 8 and found["error"] is None
    curves = {one["name"]: one["points"] for one in found["curves"]}
    assert [point[2] for point in curves["loss"]] == pytest.approx(losses)
    assert [point[1] for point in curves["loss"]] == list(range(8))
    assert [point[2] for point in curves["score"]] == [step / 2 for step in range(8)] and len(curves["other"]) == 8
    assert len(curves["steps per second"]) == 7 and all(point[2] > 0 for point in curves["samples per second"])
    (device,) = found["placement"]["devices"]
    assert device["device"] == "cpu" and device["share"] == 1 and device["parameters"] >= 4 * (6 * 16 + 16 + 16 + 1)
    assert found["sampled"]["first"] == 3 and found["sampled"]["count"] == 3
    lines = {row["name"] for row in found["lines"]}
    assert any(name.startswith("test_report.py:") for name in lines) and found["kernels"] and found["modules"]
    shares = sum(part["seconds"] for part in found["parts"])
    assert shares == pytest.approx(found["sampled"]["seconds"], rel=0.01)
    assert any("loss.backward()" in line for line in found["sources"]["test_report.py"])
    (memory,) = found["memory"]
    assert memory["peak"] > 0 and all(len(series["values"]) == len(memory["times"]) for series in memory["series"])
    assert {"parameters"} <= {*memory["roles"]} and memory["alive"]


def test_devices_that_the_run_had_nothing_to_do_with_are_not_where_it_ran(tmp_path):
    """A process opens devices for other work."""
    from tests.backends import toy
    assert toy and torch.ones(5, device="toy:1").sum().item() == 5
    found = data_of(trained(tmp_path / "run.html")[0].path)
    assert [one["device"] for one in found["placement"]["devices"]] == ["cpu"]
    assert [one["device"] for one in found["memory"]] == ["cpu"]


def test_the_page_is_whole_and_asks_nobody(tmp_path):
    run, _ = trained(tmp_path / "run.html", title="<i>&amp;</i>")
    text = Path(run.path).read_text(encoding="utf-8")
    assert "default-src 'none'" in text and "<title>&lt;i&gt;&amp;amp;&lt;/i&gt;: report</title>" in text
    assert "Sequential.0" in text and 'class="lens"' in text and "TanhBackward0" in text
    text = re.sub(r'<script id="data".*?</script>', "", text, flags=re.S)       # which quotes this very file
    outside = set(re.findall(r"https?://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not outside and " src=" not in text and "@import" not in text and "fetch(" not in text


def test_it_leaves_everything_as_it_was(tmp_path):
    before = {kind: getattr(observers, kind) for kind in observers.KINDS}
    executor = torch.config.executor
    ends = sample((0, 3, 9, 1, 2, 4), 2)              # before, in the middle of, and behind what is looked at
    for steps in ends:
        run, losses = trained(tmp_path / f"{steps}.html", rounds=steps)
        assert len(data_of(run.path)["curves"][0]["points"] if losses else []) == steps
    assert {kind: getattr(observers, kind) for kind in observers.KINDS} == before
    assert torch.config.executor == executor
    assert run.close() == run.path
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{steps}.html" for steps in ends)


def test_the_numbers_of_a_training_are_the_same_with_and_without(tmp_path):
    _, with_it = trained(tmp_path / "a.html", rounds=6)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    without = []
    for _ in range(6):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        without.append(loss.item())
    assert with_it == pytest.approx(without, rel=1e-6)


def test_an_error_is_on_the_page_and_goes_on(tmp_path):
    with pytest.raises(ZeroDivisionError), torch.report(tmp_path / "run.html"):
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        1 / 0                                         # noqa: B018
    found = data_of(tmp_path / "run.html")
    assert found["error"] == {"kind": "ZeroDivisionError", "text": "division by zero"} and found["steps"] == 0
    assert found["curves"][0]["points"][0][2] == 4.0


def test_losses_that_are_no_numbers(tmp_path):
    with torch.report(tmp_path / "run.html"), torch.watch.allow("non-finite"):
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        for _ in range(3):
            (x.log() * x).sum().backward()
    assert [point[2] for point in data_of(tmp_path / "run.html")["curves"][0]["points"]] == ["nan"] * 3
    assert "marked" in (tmp_path / "run.html").read_text().split("<style>")[2].split("</style>")[1]


def test_findings_of_watch_that_are_new(tmp_path):
    def mistaken():
        return torch.nn.functional.mse_loss(torch.zeros(5, 1, requires_grad=True), torch.zeros(5))
    torch.watch.clear()
    with pytest.warns(UserWarning):
        torch.nn.functional.l1_loss(torch.zeros(4, 1), torch.zeros(4))                     # before
    with torch.report(tmp_path / "run.html"), pytest.warns(UserWarning):
        mistaken().backward()
    found = data_of(tmp_path / "run.html")["findings"]
    assert [one["name"] for one in found] == ["broadcast"] and "mse_loss" in found[0]["source"], found
    assert found[0]["line"].startswith("test_report.py:") and found[0]["fix"]


def test_inference_alone(tmp_path):
    net = torch.nn.Linear(4, 4)
    with torch.report(tmp_path / "run.html"), torch.no_grad():
        for _ in range(3):
            net(torch.ones(8, 4)).sum().item()
    found = data_of(tmp_path / "run.html")
    assert found["curves"] == [] and found["steps"] == 0 and found["lines"] and found["sampled"]["count"] == 0


def test_what_is_asked_wrongly_is_refused_before_anything_is_recorded(tmp_path):
    before = observers.step_ended
    for wrong, said in ((dict(path=tmp_path / "run.txt"), "ends with .html"),
                        (dict(path=tmp_path / "x.html", steps=0), "at least 1"),
                        (dict(path=tmp_path / "x.html", warmup=-1), "at least 0"),
                        (dict(path=tmp_path / "x.html", warmup=True), "at least 0")):
        with pytest.raises(ValueError, match=said):
            torch.report(**wrong)
    with pytest.raises(FileNotFoundError, match="make it first"):
        torch.report(tmp_path / "nowhere" / "x.html")
    assert observers.step_ended is before and not [*tmp_path.iterdir()]
    with torch.report(tmp_path / "x.html") as run:
        with pytest.raises(TypeError, match="takes a number"):
            run.log(word="high")
        with pytest.raises(RuntimeError, match="started before"):
            run.start()


def test_a_long_run_is_thinned():
    from flambeau.reporting.data import MOST_POINTS, thinned
    points = [[i, i, float(i)] for i in range(10 * MOST_POINTS + 7)]
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS + 1 and kept[0] == points[0] and kept[-1] == points[-1]
    assert thinned(points[:MOST_POINTS]) == points[:MOST_POINTS]


PROGRAM = """
import torch
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.ones(5, 3)).square().mean().backward()
    optimizer.step()
print("through")
FAIL
"""


ENDINGS = [("", 0), ("raise SystemExit(3)", 3), ("raise ValueError('no')", 1)]


@pytest.mark.parametrize("ending, code", sample(ENDINGS, 2))
def test_the_command_writes_a_report_however_a_program_ends(tmp_path, ending, code):
    (tmp_path / "train.py").write_text(PROGRAM.replace("FAIL", ending))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", "--report", "run.html", "train.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == code and done.stdout == "through\n", done.stderr
    found = data_of(tmp_path / "run.html")
    assert found["title"] == "train.py" and found["steps"] == 4
    assert (found["error"] or {}).get("kind") == ("ValueError" if code == 1 else None)
    assert code or f"report: {tmp_path / 'run.html'}" in done.stderr


def test_without_a_with_it_is_written_when_python_ends_and_by_no_forked_child(tmp_path):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    fork = "import os, sys\nif hasattr(os, 'fork'):\n    if os.fork() == 0:\n        sys.exit(0)\n    os.wait()\n"
    code = f"import flambeau\nflambeau.report('run.html')\n{fork}assert not os.path.exists('run.html')\n" \
        + PROGRAM.replace("import torch", "torch = flambeau").replace("FAIL", "")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert data_of(tmp_path / "run.html")["steps"] == 4


def test_one_report_inside_of_another(tmp_path):
    with torch.report(tmp_path / "outer.html", warmup=0):
        trained(tmp_path / "inner.html", rounds=12, warmup=1, steps=2)
    for name in ("outer", "inner"):
        found = data_of(tmp_path / f"{name}.html")
        assert found["steps"] == 12 and len(found["curves"][0]["points"]) == 12 and found["lines"] and found["memory"]

"""The examples run as a person would run them, with `--quick`, and each learns something."""
import gc
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from tests.thorough import takes_seconds

ROOT = Path(flambeau.__file__).parents[1]
EXAMPLES = ROOT / "examples"


def run(example, *arguments):
    """What `python examples/…` prints."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, EXAMPLES / example, "--quick", *map(str, arguments)], text=True,
                          encoding="utf-8", capture_output=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8",
                               "FLAMBEAU_WATCH": "strict"})         # an example has no mistake that watch would find
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text, words):
    """The numbers that stand behind `words` in `text`."""
    return [float(found) for found in re.findall(rf"{words} ([\d.]+)", text)]


def test_demo(tmp_path):
    shown = run("demo.py", "--out", tmp_path)
    losses, explained = numbers(shown, "mean loss"), numbers(shown, "R²")
    assert losses[-1] < 0.5 * losses[0] and explained[-1] > 0.8
    page = shown.splitlines()[-1].partition("The report: ")[2]
    assert page == str((tmp_path / "report.html").resolve()) and "SELECT" not in shown
    text = Path(page).read_text(encoding="utf-8")
    assert "held_back_r_squared" in text and "demo.py" in text and "loss.backward()" in text
    (rows,) = sqlite3.connect(tmp_path / "flats.db").execute("SELECT count(*) FROM flats").fetchone()
    assert rows == 4000


@takes_seconds
def test_demo_on_a_simulated_gpu(tmp_path, monkeypatch):
    from tests.cuda.simulated import compiler, simulating
    if not compiler.is_there():
        pytest.skip("kernels are simulated with g++, on Linux")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--device", "cuda", "--rows", "9000", "--epochs", "1", "--out",
                                      str(tmp_path)])             # 28 steps: so many that repeated waiting is found
    with simulating(devices=1), flambeau.watch(strict=True):
        runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
        gc.collect()
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '"device": "cuda:0"' in text


def test_demo_says_at_once_that_there_is_no_gpu(tmp_path):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, EXAMPLES / "demo.py", "--device", "cuda", "--out", tmp_path / "out"],
                          text=True, capture_output=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1 and "the device cuda is expected and cannot be used" in done.stderr
    assert not (tmp_path / "out").exists()


@takes_seconds
def test_image_classifier(tmp_path):
    straight = run("image_classifier.py", "--out", tmp_path / "straight")
    losses, accuracies = numbers(straight, "mean"), numbers(straight, "accuracy")
    assert losses[-1] < 0.8 * losses[0] and accuracies[-1] > 30          # one in eight, 12.5 %, by chance

    run("image_classifier.py", "--out", tmp_path / "broken", "--epochs", 1)
    resumed = run("image_classifier.py", "--out", tmp_path / "broken", "--epochs", 2, "--resume")
    assert "resumed after epoch 1" in resumed and len(numbers(resumed, "first loss")) == 1
    # The next batch is the same, in the same order and under the same noise, for the same net.
    assert numbers(resumed, "first loss")[0] == pytest.approx(numbers(straight, "first loss")[1], rel=1e-4)
    assert numbers(resumed, "mean")[0] == pytest.approx(losses[1], rel=0.05)


def test_language_model():
    out = run("language_model.py")
    losses, guess = numbers(out, "mean loss"), numbers(out, "a blind guess:")[0]
    assert losses[-1] < losses[0] < guess + 0.1 and numbers(out, "not trained on:")[0] < 0.8 * guess
    assert "\nThe statement " in out


def test_table_regression(tmp_path):
    out = run("table_regression.py", "--out", tmp_path)
    assert numbers(out, "R² on rows not trained on:")[0] > numbers(out, "of linear least squares:")[0] + 0.05
    header, *rows = (tmp_path / "flats.csv").read_text().splitlines()
    assert header.endswith(",rent") and len(rows) == 3000


@takes_seconds
def test_cart_pole():
    out = run("cart_pole.py")
    assert numbers(out, "mean return of 32 trials:")[0] > 3 * numbers(out, "pushes at random:")[0]


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_without_tqdm(monkeypatch, capsys, terminal):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "progress", raising=False)
    from progress import bar
    monkeypatch.delitem(sys.modules, "progress")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    for item in (steps := bar(["a", "b", "c"], "epoch 1")):
        steps.set_postfix_str(f"loss {item}")
    shown = capsys.readouterr().err
    assert ("epoch 1: 2/3  loss b" in shown and shown.endswith("\r\033[K")) if terminal else shown == ""

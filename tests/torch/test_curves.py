"""Trainings go the way they go under PyTorch: bench/curves.py in small, and the examples with their import changed."""
import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau
from tests.torch.machines import FUNCTIONS_ATOL

ROOT = Path(__file__).parents[2]
SIZES = {"cnn": dict(images=64, size=8, channels=(4, 8), batch=16),
         "lstm": dict(series=48, length=8, width=8, batch=16),
         "gpt": dict(layers=1, width=16, heads=2, tokens=12, vocabulary=20),
         "vae": dict(images=64, size=6, width=16, latent=3, batch=16)}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


curves = load(ROOT / "bench" / "curves.py")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products this small are slower with two threads than with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", curves.MODELS)
def test_weights_from_a_seed(name):
    drawn = []
    for m in (flambeau, torch):
        m.manual_seed(curves.SEED)
        net = curves.MODELS[name](m, np.random.default_rng(curves.SEED), **SIZES[name])[0]
        drawn.append({key: tensor.numpy() for key, tensor in net.state_dict().items()})
    mine, theirs = drawn
    assert list(mine) == list(theirs)
    for key in mine:
        # Normal numbers pass through logarithms and sines, whose last digits are the machine's own.
        np.testing.assert_allclose(mine[key], theirs[key], rtol=5e-7, atol=1e-7 + FUNCTIONS_ATOL, err_msg=key)


@pytest.mark.parametrize("name", curves.MODELS)
def test_losses(name):
    """The first within a few units in the last place, twenty within what rounding can grow to in twenty steps."""
    mine, theirs = (curves.train(m, curves.MODELS[name], 20, **SIZES[name]) for m in (flambeau, torch))
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-6)
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    assert theirs[-3:].mean() < 0.99 * theirs[:3].mean()          # something was learned, so the curve is not flat


# --- the examples ---

# The arguments that make each short, and how close its figures have to be. The CNN has corners (ReLU, pooling), and
# Adam's first steps go by the sign of gradients next to nothing, which magnifies rounding sooner than anything else.
RUNS = {"image_classifier.py": ("--epochs 1 --out {}", 0.03),
        "language_model.py": ("--steps 16", 1e-3),
        "table_regression.py": ("--epochs 2 --rows 1500 --out {}", 1e-3),
        "cart_pole.py": ("--rounds 2", 1e-3)}


def printed(example, line, arguments, monkeypatch):
    """What the example prints with `line` in the place of its import."""
    source = (ROOT / "examples" / example).read_text(encoding="utf-8")
    assert source.count("flambeau as torch") == source.count("\nimport flambeau as torch\n") == 1
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(sys, "argv", [example, "--quick", *arguments])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source.replace("import flambeau as torch", line), example, "exec"),
             {"__name__": "__main__", "__file__": example})
    return out.getvalue()


@pytest.mark.parametrize("example", RUNS)
def test_example_under_pytorch(example, tmp_path, monkeypatch):
    arguments, tolerance = RUNS[example]
    arguments = [word.format(tmp_path) for word in arguments.split()]
    mine = printed(example, "import flambeau as torch", arguments, monkeypatch)
    theirs = printed(example, "import torch", arguments, monkeypatch)

    figures = re.compile(r"(?:loss|mean|ended after) ([\d.]+)")
    first, *more = map(float, figures.findall(mine))
    first_theirs, *more_theirs = map(float, figures.findall(theirs))
    assert first == pytest.approx(first_theirs, rel=1e-5)
    assert more and more == pytest.approx(more_theirs, rel=tolerance)
    # Apart from their figures they say the same, but for what the language model makes up at the end.
    said, said_theirs = (re.sub(r"[\d.,]+", "#", text.split("\n\n")[0]) for text in (mine, theirs))
    assert said == said_theirs

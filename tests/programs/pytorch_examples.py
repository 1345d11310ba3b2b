"""pytorch/examples: its scripts of pictures as they are, started with their own arguments on small local data: the
losses that they print, with torchvision and with Flambeau's part of it.

`make programs` clones them to .venv-programs/examples; PYTORCH_EXAMPLES names another folder. Under PyTorch a script is
run once, under Flambeau twice: as it is, and where torchvision is not to be found.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from tests.data.on_disk import write_mnist
from tests.programs import tolerance

PACKAGES = ["torchvision", "pillow"]

EXAMPLES = Path(os.environ.get("PYTORCH_EXAMPLES") or Path(__file__).parents[2] / ".venv-programs" / "examples")
IS_FLAMBEAU = str(torch.__version__).endswith("+flambeau")
# `flambeau run`, in a process that finds no torchvision.
WITHOUT_TORCHVISION = """
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
def find_others(name, path=None, target=None):
    return None if name == "torchvision" else find(name, path, target)
importlib.machinery.PathFinder.find_spec = find_others
from flambeau.cli import main
sys.exit(main(["run", *sys.argv[1:]]))
"""
# A script that sets no seed, with one.
SEEDED = """
import runpy, sys, torch
torch.manual_seed(1)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _printed(script, *arguments, without=False, seeded=False, lines=None):
    """What a script prints: all of it, or its first `lines` lines that tell a loss, after which it is ended."""
    path = EXAMPLES / script
    if not path.exists():
        raise FileNotFoundError(f"{path}: git clone https://github.com/pytorch/examples {EXAMPLES}")
    folder = Path("run")                                      # the scripts look for their data in ../data
    (folder / "results").mkdir(parents=True, exist_ok=True)
    start = [sys.executable, *["-c", WITHOUT_TORCHVISION] * without, *["-c", SEEDED] * seeded, str(path),
             *map(str, arguments)]
    # Without the safe path: a script imports what lies beside it.
    environment = {name: held for name, held in os.environ.items() if name != "PYTHONSAFEPATH"}
    process = subprocess.Popen(start, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**environment, "PYTHONUNBUFFERED": "1"})
    try:
        if lines is None:
            out, errors = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"{script} ended with {process.returncode}:\n{errors}")
            return out
        told = []
        for line in process.stdout:
            told += [line] * ("Loss" in line)
            if len(told) == lines:
                return "".join(told)
        raise RuntimeError(f"{script} ended after {len(told)} lines:\n{process.stderr.read()}")
    finally:
        process.kill()
        process.communicate()


def _ran(script, *arguments, **settings):
    """What both runs of a script print."""
    both = [_printed(script, *arguments, without=without, **settings) for without in (False, True)[:1 + IS_FLAMBEAU]]
    return {"torchvision": both[0], "flambeau": both[-1]}


def _numbers(printed, **patterns):
    """The numbers that the patterns find, by name, in each run's text."""
    return {run: {name: [float(found) for found in re.findall(pattern, text)] for name, pattern in patterns.items()}
            for run, text in printed.items()}


@tolerance(2e-3, "two epochs of Adadelta carry the order of sums on")
def mnist():
    """A convolutional net with dropout, Adadelta and a schedule."""
    write_mnist("data", train=256, test=100)
    return _numbers(_ran("mnist/main.py", "--epochs", 2, "--log-interval", 1),
                    losses=r"\tLoss: (\S+)", test=r"Average loss: ([\d.]+)", right=r"Accuracy: (\d+)/100")


@tolerance(2e-3, "two epochs of Adadelta carry the order of sums on")
def mnist_rnn():
    """An LSTM that reads a picture line by line."""
    write_mnist("data", train=256, test=100)
    return _numbers(_ran("mnist_rnn/main.py", "--epochs", 2, "--log-interval", 1),
                    losses=r"\tLoss: (\S+)", test=r"Average loss: ([\d.]+)", right=r"Accuracy: (\d+)/100")


@tolerance(1e-3, "two epochs of Adam carry the order of sums on")
def vae():
    """A variational autoencoder, whose pictures go into files."""
    write_mnist("data", train=256, test=128)
    found = _numbers(_ran("vae/main.py", "--epochs", 2, "--log-interval", 1),
                     losses=r"\tLoss: (\S+)", mean=r"Average loss: (\S+)", test=r"Test set loss: (\S+)")
    return {**found, "pictures": sorted(path.name for path in Path("run/results").glob("*.png"))}


@tolerance(5e-3, "two nets against each other carry the order of sums on")
def dcgan():
    """Two convolutional nets against each other, on digits that are resized, and on noise."""
    write_mnist("data", train=64, test=16)
    small = ["--batchSize", 16, "--ngf", 8, "--ndf", 8, "--niter", 1, "--manualSeed", 1]
    patterns = {"losses": r"Loss_[DG]: ([\d.]+)", "decisions": r"D\(x\): ([\d.]+)"}
    digits = _ran("dcgan/main.py", "--dataset", "mnist", "--dataroot", "../data", *small)
    noise = _ran("dcgan/main.py", "--dataset", "fake", "--dry-run", *small)
    return {"digits": _numbers(digits, **patterns), "noise": _numbers(noise, **patterns)}


def mnist_hogwild():
    """Processes that train one net in shared memory, without waiting for each other: both tell of falling losses, and
    the net that is tested has learned from them."""
    write_mnist("data", train=640, test=100)
    told = {}
    for run, text in _ran("mnist_hogwild/main.py", "--epochs", 3, "--lr", 0.05, "--log-interval", 1).items():
        losses = {}
        for process, loss in re.findall(r"(\d+)\tTrain Epoch.*Loss: (\S+)", text):
            losses.setdefault(process, []).append(float(loss))
        (test,) = re.findall(r"Average loss: ([\d.]+)", text)
        told[run] = {"processes": len(losses),                # which may print over each other's lines
                     "losses_fall": [sum(held[-5:]) < sum(held[:5]) for held in losses.values()],
                     "net_has_learned": float(test) < 2.0}
    return told


@tolerance(2e-3, "ten steps of Adam for each layer carry the order of sums on")
def mnist_forward_forward():
    """Layers that learn one after the other, from right and wrong labels, without a backward pass through the net."""
    write_mnist("data", train=200, test=100)
    write_mnist("run/data", train=200, test=100)              # this script looks there
    return _numbers(_ran("mnist_forward_forward/main.py", "--epochs", 10, "--log-interval", 2, "--train_size", 200,
                         "--test_size", 100, seeded=True), losses=r"Loss:\s+(\S+)", errors=r"error: (\S+)")


@tolerance(5e-3, "with a rate of 0.1 on four pictures a step doubles the loss, and rounding with it: PyTorch itself "
                 "comes to 12.256 on x86-64 and to 12.285 on aarch64")
def imagenet():
    """The trainer of ImageNet with a model of torchvision's, on made up pictures: the first steps of its epoch."""
    text = _printed("imagenet/main.py", "--dummy", "-a", "resnet18", "--epochs", 1, "--batch-size", 4, "--workers", 0,
                    "--seed", 1, "--print-freq", 1, lines=3)
    return _numbers({"torchvision": text}, losses=r"Loss ([\d.e+-]+)")

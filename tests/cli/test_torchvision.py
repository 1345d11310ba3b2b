"""`torchvision` under `flambeau run`: the package where it is installed, else the part that Flambeau has."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from tests.patience import PATIENCE

ROOT = Path(flambeau.__file__).parents[1]
# `flambeau run` in a process that finds torchvision on no path but those below the first two arguments.
HIDING = """
import importlib.machinery, sys
find, below = importlib.machinery.PathFinder.find_spec, tuple(sys.argv[1:3])
def find_others(name, path=None, target=None):
    found = find(name, path, target)
    if name == "torchvision" and found is not None and not str(found.origin).startswith(below):
        return None
    return found
importlib.machinery.PathFinder.find_spec = find_others
from flambeau.cli import main
sys.exit(main(["run", *sys.argv[3:]]))
"""


def run(tmp_path, *arguments):
    """A finished `flambeau run …` whose torchvision, if there is one, is below tmp_path."""
    own = os.path.join(os.path.dirname(flambeau.__file__), "cli", "path")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run([sys.executable, "-c", HIDING, str(tmp_path), own, *map(str, arguments)], cwd=tmp_path,
                          text=True, capture_output=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path})


def test_ours(tmp_path):
    done = run(tmp_path, "-c", """if 1:
        import torchvision.transforms as T                  # before torch
        import torch, torchvision, flambeau
        import torchvision.transforms.v2.functional as F2, torchvision.transforms.functional as F
        from torchvision import datasets, transforms, utils
        from torchvision.transforms import v2
        from torchvision.datasets.folder import ImageFolder, default_loader
        from torchvision.datasets.utils import check_integrity
        from torchvision.transforms.autoaugment import AutoAugmentPolicy
        assert T is transforms is v2 is flambeau.data.transforms and F is F2 is flambeau.data.transforms.functional
        assert datasets is flambeau.data.datasets and utils is flambeau.data.pictures
        assert ImageFolder is datasets.ImageFolder and torchvision.__version__ == "0.28.0+flambeau"
        assert T.Compose([T.CenterCrop(4), T.RandAugment()])(torch.zeros(2, 3, 8, 8)).shape == (2, 3, 4, 4)
        assert utils.make_grid(torch.zeros(4, 3, 2, 2)).shape == (3, 6, 18)
        assert torchvision.get_image_backend() == "PIL" and "datasets" in dir(torchvision)
        import importlib.util, importlib.metadata
        assert importlib.util.find_spec("torchvision") is torchvision.__spec__
        assert importlib.util.find_spec("torchvision.datasets") is not None
        assert not hasattr(torchvision, "models") and not hasattr(torchvision, "datsets")
        import pickle
        assert type(pickle.loads(pickle.dumps(T.RandAugment(3)))).__module__ == "flambeau.data.transforms.auto"
        print("fine")""")
    assert done.stdout == "fine\n", done.stderr


REST = [
    ("import torchvision.models", "torchvision.models"), ("from torchvision import models", "torchvision.models"),
    ("from torchvision.ops import nms", "torchvision.ops"), ("import torchvision.io.image", "torchvision.io"),
    ("from torchvision.datasets import folder, LSUN", "torchvision.datasets.LSUN"),
    ("from torchvision.transforms.v2 import ClampBoundingBoxes", "torchvision.transforms.ClampBoundingBoxes"),
    ("from torchvision.transforms.v2.functional import resize_mask", "torchvision.transforms.functional.resize_mask"),
    ("import importlib.util\nimportlib.util.find_spec('torchvision.models')", "torchvision.models"),
    ("import torchvision\ntorchvision.models.resnet18()", "torchvision.models"),
]


def test_the_rest_says_what_to_install(tmp_path):
    done = run(tmp_path, "-c", f"""if 1:
        for code, name in {REST}:
            kind = AttributeError if "resnet18" in code else ModuleNotFoundError
            try:
                exec(code)
                print("no error", code)
            except kind as error:
                said = f"Flambeau has no {{name}}: " in str(error) and "pip install torchvision==0.28.0" in str(error)
                print("fine" if said else error)""")
    assert done.stdout == "fine\n" * len(REST), done.stdout + done.stderr


def test_the_package_where_it_is_installed(tmp_path):
    (tmp_path / "torchvision" / "models").mkdir(parents=True)
    (tmp_path / "torchvision" / "__init__.py").write_text("real = True\n")
    (tmp_path / "torchvision" / "models" / "__init__.py").write_text("import torch\nnet = torch.nn.Linear\n")
    done = run(tmp_path, "-c", "import torchvision, torchvision.models as m, importlib.util as u, torch\n"
                               "print(torchvision.real, m.net is torch.nn.Linear, u.find_spec('torchvision.utils'))")
    assert done.stdout == "True True None\n", done.stderr


def test_a_folder_of_the_name_is_not_the_package(tmp_path):
    (tmp_path / "torchvision").mkdir()
    done = run(tmp_path, "-c", "import torchvision.utils\nprint(torchvision.utils.__name__)")
    assert done.stdout == "flambeau.data.pictures\n", done.stderr


@pytest.mark.parametrize("real", [False, True])
def test_processes_that_are_started_afresh(tmp_path, real):
    if real:
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text("real = True\n")
    elif subprocess.run([sys.executable, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torchvision') "
                                               "is not None)"], timeout=PATIENCE).returncode:
        pytest.skip("a fresh process finds the torchvision that is installed here")
    (tmp_path / "main.py").write_text("import torchvision\nimport multiprocessing\n"
                                      "def told():\n    return getattr(torchvision, 'real', torchvision.__name__)\n"
                                      "if __name__ == '__main__':\n"
                                      "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
                                      "        print(pool.apply(told))\n")
    done = run(tmp_path, "main.py")
    assert done.stdout == ("True\n" if real else "torchvision\n"), done.stderr

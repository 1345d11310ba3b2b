"""`modules.txt` is the modules of PyTorch: none too many, none too few. `python -m tests.torch.test_importable` prints
it. `tests/submodules.txt` is those of them that `import torch` loads and Flambeau has."""
import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import torch

import flambeau
from flambeau.base.names import modules

HEAD = "# The modules of PyTorch 2.13, by the package they are in; what is not here can be imported and is missing.\n"


def of_torch():
    """The names of all modules that come with PyTorch: files, and what its compiled code registers."""
    root = Path(torch.__file__).parent
    importlib.import_module("torch.distributed._tensor")      # which registers more, under older names
    found = {name for name in sys.modules if name.split(".")[0] == "torch"}
    for folder in (root, root.parent / "functorch"):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(root.parent).with_suffix("").parts
            found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    above = {".".join(name.split(".")[:n]) for name in found for n in range(1, name.count(".") + 1)}
    return {name for name in found | above if not name.startswith("torch.testing._internal.")
            and all(part.isidentifier() for part in name.split("."))}


def test_the_list_of_modules():
    theirs = of_torch() - {"torch.testing._internal", "torch._C._itt"}       # the second is Intel's, on its processors
    mine = modules() - {"torch.testing._internal"}
    assert not theirs - mine and not {name for name in mine - theirs if not name.startswith("torch._C")}


def loaded_with_torch():
    """The submodules that a process has right after `import torch`, and that are files here too."""
    done = subprocess.run([sys.executable, "-c", "import sys, torch; print(*sys.modules)"], capture_output=True,
                          text=True, check=True)
    root = Path(flambeau.__file__).parent
    files = [(name, folder.joinpath(*name.split(".")[1:])) for name in done.stdout.split()
             if name.startswith("torch.") for folder in (root, root / "compat")]
    return sorted(name for name, file in files if file.is_dir() or file.with_suffix(".py").is_file())


def test_the_list_of_submodules():
    listed = Path(__file__).parents[1] / "submodules.txt"
    assert listed.read_text().split() == loaded_with_torch(), f"write loaded_with_torch() into {listed.name}"


if __name__ == "__main__":
    inside: dict = {}
    for name in sorted(of_torch()):
        parent, _, last = name.rpartition(".")
        inside.setdefault(parent, []).append(last)
    print(HEAD)
    for parent in sorted(inside):
        if parent:
            print(f"{parent}:")
            print(textwrap.fill(" ".join(inside[parent]), 120, initial_indent="    ", subsequent_indent="    ",
                                break_on_hyphens=False, break_long_words=False))

"""`modules.txt` is the modules of PyTorch: none too many, none too few. `python -m tests.torch.test_importable` prints
it."""
import importlib
import sys
import textwrap
from pathlib import Path

import torch

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
    theirs = of_torch() - {"torch.testing._internal"}
    mine = modules() - {"torch.testing._internal"}
    assert not theirs - mine and not {name for name in mine - theirs if not name.startswith("torch._C")}


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

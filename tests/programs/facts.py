"""What a program's file says of itself, read without importing it; and docs/packages.md, which is made of that."""
import ast
from dataclasses import dataclass


@dataclass
class Facts:
    """The constants of a program, and the first sentences of its documentation."""
    packages: list
    quick: bool
    lacks: list
    says: str                 # the docstring of the file
    parts: dict               # the docstring of each part
    bounds: dict              # by how much a part may differ, where it says so, and why


def facts_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
                 if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                 and node.targets[0].id in ("PACKAGES", "QUICK", "LACKS")}
    parts = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    bounds = {part.name: tuple(map(ast.literal_eval, mark.args)) for part in parts for mark in part.decorator_list
              if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "tolerance"}
    return Facts(constants["PACKAGES"], constants.get("QUICK", False), constants.get("LACKS", []),
                 ast.get_docstring(tree) or "", {part.name: ast.get_docstring(part) or "" for part in parts}, bounds)


HEAD = """\
# Packages

What is built on PyTorch runs on Flambeau, in an environment without PyTorch
([how](porting.md#the-torch-of-an-environment)). For each package there is a program of its ordinary use, in
`tests/programs`, whose numbers (losses, logits, generated tokens, gradients, samples) are held against those that
PyTorch 2.13.0 gave for the same program. `make programs` installs the packages and runs them all; this page is written
by such a run:

```sh
python -m tests.programs --page docs/packages.md
```

Floating point results agree to 2e-5 of the largest number in their array where no other bound is given below, with its
reason; tokens, classes and counts are equal.

| package | version | parts that agree | what runs |
| --- | --- | --- | --- |
"""


def page(outcomes):
    """The text of docs/packages.md."""
    rows, details = [], []
    for outcome in outcomes:
        packages = ", ".join(outcome.versions)
        versions = ", ".join(version or "not installed" for version in outcome.versions.values())
        total = len(outcome.passed) + len(outcome.failed)
        says = " ".join(outcome.facts.says.split("\n\n")[0].split())
        rows.append(f"| {packages} | {versions} | {len(outcome.passed)} of {total} | {says} |")
        lines = [f"- {part}: {_sentence(outcome.facts.parts.get(part, ''))}{_bound(outcome.facts.bounds.get(part))}"
                 for part in outcome.passed]
        lines += [f"- **{part} does not agree**: `{found.strip().splitlines()[-1]}`"
                  for part, found in outcome.failed.items()]
        lines += [f"- Not supported: {lack}" for lack in outcome.facts.lacks]
        details.append(f"## {outcome.name}\n\n" + "\n".join(lines))
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(details) + "\n"


def _bound(given):
    return f" (To {given[0]:g}: {given[1]}.)" if given else ""


def _sentence(text):
    return " ".join(text.split("\n\n")[0].split())

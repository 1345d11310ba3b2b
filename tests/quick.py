"""The tests that a change most likely breaks, in some minutes: `make quick`, or `python -m tests.quick --list [since]`.

Changed is what differs from the commit `since` (main, or the last commit where that is main), with what git does not
know yet. Taken are: changed tests; those that import a changed module, or name a changed file beside tests; those
called like it, or like a module that imports it. `.ci/run` runs everything.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from .sources import parsed
from .test_layers import import_edges, import_nodes, targets

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "flambeau"
READ_SOURCES = "tests/test_layers.py", "tests/test_names.py"       # and run nothing: one core is enough
ALWAYS = (*READ_SOURCES, "tests/test_tiny.py", "tests/test_import.py")
MANY_IMPORTERS = 25            # of a module that is everywhere; its importers are left to `.ci/run`
NEED_MORE = "tests/torch", "tests/torchvision"        # PyTorch: `make conformance`


def changed_files(since):
    """The files that differ from `since`, and those that git does not know."""
    def lines(*command):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")
    start = lines("merge-base", since, "HEAD")[0]
    if start == lines("rev-parse", "HEAD")[0] and not lines("status", "--porcelain")[0]:
        start = "HEAD~1"
    return sorted({file for file in (*lines("diff", "--name-only", start),
                                     *lines("ls-files", "--others", "--exclude-standard")) if file})


def module_of(file):
    """The dotted name of a file of the package, inside of it; None for other files."""
    parts = Path(file).with_suffix("").parts
    if parts[0] != PACKAGE.name or Path(file).suffix not in (".py", ".pyx", ".pxd"):
        return None
    return ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])


def test_files():
    """Every file of tests that `make test` collects → the modules of the package that it imports, and the files beside
    tests whose names it says."""
    found, beside = {}, {}
    for path in (ROOT / "tests").rglob("*.*"):
        if not path.name.startswith(("test_", "__init__")) and path.suffix != ".pyc":
            beside.setdefault(path.stem, set()).add(str(path.relative_to(ROOT)))
    for name, path, tree in parsed(ROOT / "tests"):
        file = str(path.relative_to(ROOT))
        if path.name.startswith("test_") and not file.startswith(NEED_MORE):
            found[file] = {target.partition(".")[2] for node, _ in import_nodes(tree) if not getattr(node, "level", 0)
                           for target in targets(node, name, path, PACKAGE)}
            found[file].update(*(beside[word] for word in {*re.findall(r"\w+", path.read_text())} & beside.keys()))
    return found


def chosen(files, edges, tests):
    """The test files, of `tests`, that changes of `files` most likely break; `edges` are the imports of the package."""
    changed = {module for module in map(module_of, files) if module}            # not the facade, which all import
    importers = {module: {importer for importer, imported in edges if imported == module} for module in changed}
    touched = changed.union(*(found for found in importers.values() if len(found) <= MANY_IMPORTERS))
    named = {f"test_{module.rpartition('.')[2]}.py" for module in touched}
    picked = {file for file, reads in tests.items()
              if file in files or reads & changed or reads & {*files} or Path(file).name in named}
    if any(file.endswith(".md") for file in files):
        picked.add("tests/test_docs.py")
    return sorted({*ALWAYS, *picked})


def main(arguments):
    only_list = "--list" in arguments
    since = next((word for word in arguments if not word.startswith("-")), "main")
    picked = chosen(changed_files(since), import_edges(PACKAGE), test_files())
    print("\n".join(picked), flush=True)
    if only_list:
        return 0
    return max(subprocess.run([sys.executable, "-m", "pytest", "-n", "2", "-q", *files], cwd=ROOT,
                              env={**os.environ, "FLAMBEAU_CORE": core}).returncode
               for core, files in (("python", picked), ("compiled", [f for f in picked if f not in READ_SOURCES])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

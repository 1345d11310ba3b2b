"""The documentation is run: every ```python block of the Markdown pages, every `>>>` in a docstring.

The blocks of one page run in order, in one namespace that starts with `torch` (Flambeau itself).
- A block that starts with `>>>` is a doctest: what it prints is compared.
- Any other block is executed, and then the sessions in its docstrings. A word after `python` is the file name it runs
  under, as in ```python train.py
- Below `<!-- raises -->` a block has to raise, and the next ```text block is the error, word for word.
- Below `<!-- from flambeau/ops/arith.py -->` a block is a quotation, which that file has to contain.
- Below `<!-- not run -->` a block is only for reading.
- Below `<!-- on cuda -->` a block needs a CUDA device: a GPU, or else a simulated one, or else it is only read. Before
  `raises` it can stand too.

A docstring runs with its module's own names, and `torch`.
"""

import ast
import contextlib
import doctest
import gc
import importlib
import linecache
import multiprocessing
import os
import re
from pathlib import Path

import pytest

import flambeau
from flambeau.base import settings
from flambeau.trace.planning.lower import Words

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- *(?P<mark>[\w ./]+?) *-->\n+)?"
                   r"```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(autouse=True)
def forked():
    """The classes of a page are in no module that another process could import, so workers are forked."""
    before = multiprocessing.get_start_method(allow_none=True)
    if hasattr(os, "fork"):
        multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def doctest_of(text, name, path, line, namespace):
    """Run `text` as a doctest and fail with doctest's own report."""
    test = doctest.DocTestParser().get_doctest(text, namespace, name, str(path), line)
    report = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    namespace.update(test.globs)


def execute(text, file, namespace):
    """Run `text` as if it were the file `file`, with its lines there for tracebacks and messages to quote."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)


ONCE = "CONTRIBUTING.md",          # it registers a device, which a process does once


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.pinned if page.name in ONCE else ())
                                  for page in PAGES], ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page(page):
    source = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(source))
    with contextlib.ExitStack() as devices, flambeau.watch(strict=True):        # nothing that is shown is a mistake
        run_page(page, source, blocks, devices)


def has_cuda(devices):
    """Whether there is a CUDA device until `devices` is closed: a GPU, or a simulated one."""
    from tests.cuda.simulated import compiler, simulating
    if flambeau.cuda.is_available():
        return True
    if compiler.is_there():
        devices.enter_context(simulating(devices=2))
    return compiler.is_there()


def run_page(page, source, blocks, devices):
    namespace = {"torch": flambeau, "__name__": "__main__"}
    for block, following in zip(blocks, [*blocks[1:], None]):
        line = source[:block.start("text")].count("\n")
        mark, text, where = block["mark"], block["text"], f"{page.name}:{line + 1}"
        if block["kind"] != "python" or mark == "not run":
            continue
        if mark is not None and mark.startswith("on cuda"):
            if not has_cuda(devices):
                continue
            mark = mark.removeprefix("on cuda").strip() or None
        if mark is not None and mark.startswith("from "):
            quoted = ROOT / mark.removeprefix("from ")
            assert text in quoted.read_text(encoding="utf-8"), f"{where}: {quoted.name} says something else now"
        elif text.startswith(">>>"):
            if "memory_allocated" in text:
                gc.collect()                  # what other tests left would come back in the middle, and be missing
            doctest_of(text, where, page, line, namespace)
        elif mark == "raises":
            assert following is not None and following["kind"] == "text", f"{where}: no ```text block follows"
            with pytest.raises(Exception) as caught:
                execute(text, block["file"] or where, namespace)
            assert f"{type(caught.value).__name__}: {caught.value}" == following["text"].rstrip("\n"), where
        else:
            execute(text, block["file"] or where, namespace)
            for name, session, below in sessions(text):
                doctest_of(session, f"{where}:{name}", page, line + below, namespace)


def test_the_page_on_native_execution_is_complete():
    """Every word that a body may use, and every switch with its variable, stands in a table there."""
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs" / "native.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]*`", "\n".join(rows)))))
    words = {name for name in vars(Words) if not name.startswith("_")}
    variables = {variable for variable, _ in settings.SWITCHES.values()} - {None}
    missing = (words | settings.SWITCHES.keys() | variables) - named
    assert not missing, f"docs/native.md says nothing about {', '.join(sorted(missing))}"


def test_the_page_on_contributing_names_the_commands_as_they_are():
    """Every target of the Makefile that is for people has a row, and what `.ci/run` runs comes first, in its order."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `make (\w+)` \|", text, re.MULTILINE)
    targets = re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    checked = re.findall(r"^ *(?:\w+=\$?\w+ )?make (\w+)(?: +#.*)?$", script, re.MULTILINE)
    assert sorted(rows) == sorted(targets) and rows[:len(checked)] == checked
    count = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][len(checked) - 1]
    assert f"it is the first\n{count}," in text


def sessions(source):
    """(name, docstring, line) of each docstring in `source` that shows a session."""
    if ">>>" not in source:                                # most modules show none, and to read them all takes long
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and ">>>" in text:
                yield getattr(node, "name", "module"), text, node.body[0].lineno - 1


def docstrings():
    """Each docstring of the package that shows a session."""
    for path in sorted((ROOT / "flambeau").rglob("*.py")):
        for name, text, line in sessions(path.read_text(encoding="utf-8")):
            yield pytest.param(text, path, line, id=f"{path.relative_to(ROOT)}:{name}")


@pytest.mark.parametrize("text, path, line", list(docstrings()))
def test_docstring(text, path, line):
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    doctest_of(text, path.name, path, line, {**vars(module), "torch": flambeau})

"""`help`, `inspect` and IPython's `?` take an operation for what it is to its user, a function: arguments, an example.

What is walked here is every operation under every public name, so an operation that is added has to have them too.
"""
import copy
import doctest
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.base.op import Op
from flambeau.tensor import help as pages
from flambeau.tensor.forms import declared, function_name, namespace
from tests.patience import PATIENCE

FUNCTIONS = {f"{space}.{name}".lstrip("."): op for space, held in namespace.items() for name, op in held.items()
             if isinstance(op, Op)}
OPS = {function_name(op).removeprefix("torch."): op for op in FUNCTIONS.values()}
METHODS = {name: form for name, form in vars(torch.Tensor).items()
           if getattr(form, "op", None) and not name.startswith("_")}
INSIDE = re.compile(r"\b(ref|body|d_input|arg_names|Method resolution order)\b")


def shown(thing):
    """The page that `help(thing)` prints."""
    return pydoc.plain(pydoc.render_doc(thing, "%s"))


def test_there_is_something_to_walk():
    assert len(OPS) > 480 and len(METHODS) > 400


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_shown_as_a_function(name):
    op = FUNCTIONS[name]
    page = shown(op)
    assert inspect.isroutine(op) and not inspect.isclass(op)
    heading = f"{op.__name__}{inspect.signature(op)}"         # Python 3.13 and later break a long one into lines
    assert "".join(page.split("\n", 2)[2].split()).startswith("".join(heading.split()))
    assert not INSIDE.search(page), page


@pytest.mark.parametrize("name", OPS)
def test_every_argument_is_named(name):
    op = OPS[name]
    page = inspect.getdoc(op)
    silent = [p.name for p in inspect.signature(op).parameters.values()
              if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and not p.name.startswith("_")
              and f"`{p.name}`" not in page and f"    {p.name}: " not in page]
    assert not silent, f"help({name}) says nothing about {silent}"


@pytest.mark.parametrize("name", OPS)
def test_every_page_has_an_example_that_runs(name):
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(OPS[name]), {"torch": torch}, name, None, 0)
    assert examples.examples, f"help({name}) has no example"
    report = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(examples, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_arguments_of_its_operation_after_the_tensor(name):
    form = METHODS[name]
    given, own = list(inspect.signature(form).parameters), list(inspect.signature(form.op).parameters)
    first = next(iter(inspect.signature(form.op).parameters.values()), None)
    expected = own if first is None or first.kind is first.VAR_POSITIONAL else ["self", *own[1:]]
    declared_out = "out" in inspect.signature(form.op.meaning()[0]).parameters
    assert given == [argument for argument in expected if argument != "out" or declared_out], name
    page = shown(form)
    assert page.splitlines()[2].startswith(f"{name}(") and inspect.getdoc(form), page
    if form.op in FUNCTIONS.values():
        assert f"help({function_name(form.op)})" in page, page
    elif not name.endswith("_") and name not in ("cuda", "index"):     # there is no GPU, and one writes `x[i]`
        assert ">>> " in page, page


def test_a_bound_method_leaves_the_tensor_out():
    assert str(inspect.signature(torch.ones(2).add)) == "(other, *, alpha=1)"
    assert str(inspect.signature(torch.add)) == "(input, other, *, alpha=1, out=None)"
    assert str(inspect.signature(torch.nn.functional.relu)) == "(input, inplace=False)"


def test_what_is_said_of_arguments_and_examples_is_used():
    """A line in arguments.txt, or a session in examples.txt, that no page shows is a mistake in its name."""
    text = "\n".join(inspect.getdoc(op) for op in OPS.values())
    assert not [meaning for _, meaning in pages.arguments() if meaning not in text]
    extra = [name for name in pages.examples() if name not in OPS or ">>>" in (OPS[name].docstring or "")]
    assert not extra


def test_a_page_is_made_when_it_is_asked_for():
    code = "import sys, flambeau; print('flambeau.tensor.help' in sys.modules, 'inspect' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split()[0] == "False"


def test_an_operation_is_one_object_wherever_it_is_kept():
    class Layer:
        activation = torch.relu

    assert Layer().activation is torch.relu                        # it binds nothing, as PyTorch's functions
    assert copy.deepcopy(torch.relu) is torch.relu
    assert pickle.loads(pickle.dumps([torch.relu, torch.nn.functional.gelu])) == [torch.relu, torch.nn.functional.gelu]
    for name, op in declared.items():
        assert pickle.loads(pickle.dumps(op)) is op, name


@pytest.mark.parametrize("space", ["nn.functional", "linalg", "special"])
def test_the_page_of_a_module_lists_its_functions(space):
    owner = torch
    for part in space.split("."):
        owner = getattr(owner, part)
    lines = shown(owner).splitlines()
    for name, op in namespace[space].items():
        if isinstance(op, Op) and op.__module__.startswith("flambeau.ops."):       # the pages of docs/ add their own
            assert any(line.strip().startswith((f"{op.__name__}(", f"{name} = {op.__name__}(")) for line in lines), name


def test_the_source_of_a_method_is_its_declaration():
    assert inspect.getsource(torch.Tensor.exp).startswith("class exp(")
    assert inspect.getsource(torch.ones(2).clamp_).startswith("class clamp")


def test_the_page_in_the_documentation():
    text = (Path(__file__).parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    printed = "\n".join(line.rstrip() for line in shown(torch.mul).splitlines()[2:])
    assert f"```text\n{printed.rstrip()}\n```" in text


def test_out_is_taken_where_it_is_shown():
    x = torch.ones(2)
    for name, op in FUNCTIONS.items():
        if "out" not in inspect.signature(op).parameters and name not in ("einsum",):
            with pytest.raises(TypeError, match="out"):
                op(x, out=torch.empty(0))

"""What `help` says is PyTorch's too: each example prints the same there, and `out=` is shown where PyTorch takes it."""
import ast
import doctest
import inspect
from pathlib import Path

import pytest

import flambeau
from flambeau.base.op import Op
from flambeau.tensor import help as pages
from flambeau.tensor.forms import namespace

torch = pytest.importorskip("torch")

# PyTorch names no function of Python in `torch` and `linalg` whose arguments could be inspected; its stubs say them.
STUBS = {}
for node in ast.walk(ast.parse((Path(torch.__file__).parent / "_C" / "_VariableFunctions.pyi").read_text())):
    if isinstance(node, ast.FunctionDef):
        given = node.args
        STUBS.setdefault(node.name, []).append([a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(pages.examples()))
def test_an_example_prints_the_same_in_pytorch(name):
    session = doctest.DocTestParser().get_doctest(pages.examples()[name], {"torch": torch}, name, None, 0)
    report = []
    doctest.DocTestRunner().run(session, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", [name for name, op in namespace[""].items() if isinstance(op, Op) and name in STUBS])
def test_out_is_shown_where_pytorch_takes_it(name):
    if name == "det":
        return                                        # linalg.det, the same operation here, takes it
    shown = "out" in inspect.signature(getattr(flambeau, name)).parameters
    assert shown == any("out" in arguments for arguments in STUBS[name])


@pytest.mark.parametrize("name", [name for name, op in namespace[""].items() if isinstance(op, Op) and name in STUBS])
def test_arguments_have_the_names_that_pytorch_takes(name):
    """Those of one of PyTorch's overloads; further ones of its own, such as `*sizes`, may stand beside them."""
    parameters = inspect.signature(getattr(flambeau, name)).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return                                        # it takes them apart by itself
    own = {p.name for p in parameters}
    free = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    lacking = [set(arguments) - own - NOT_HERE.get(name, set()) - {"names"} for arguments in STUBS[name]]
    assert free or any(not missing for missing in lacking), lacking


NOT_HERE = {
    "rrelu": {"generator"},                           # that of the function for `inplace` stands in its place
    "group_norm": {"cudnn_enabled"},
    "_grouped_mm": {"input", "mat2"},                 # called as those of nn.functional.grouped_mm
    "orgqr": {"input2"},                              # called `tau`, as that of linalg.householder_product
}

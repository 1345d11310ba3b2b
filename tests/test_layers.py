"""Imports point downwards: a folder of the package imports itself and the folders below it, nothing else, and no module
imports, through whatever others, itself.

The files are parsed, not imported, so an import inside a function counts as much as one at the top. Imports
under `if TYPE_CHECKING:` are for the type checker and do not count.
"""

import ast
import functools
from pathlib import Path

import pytest

from .sources import parsed

pytestmark = pytest.mark.pinned

PACKAGE = Path(__file__).parents[1] / "flambeau"

LOWER = ("base", "loops", "backends", "trace", "autograd", "tensor")

# What each room, a folder or a module, may import besides itself. A dotted name is one module of a folder.
ALLOWED = {
    "base":     (),
    "loops":    ("base",),
    "backends": ("base", "loops"),
    "trace":    ("base", "loops", "backends"),      # reads `op.ref` off the instruction, never imports ops
    "ops":      ("base", "loops.scalar"),
    "autograd": ("base", "trace"),
    "tensor":   ("base", "loops", "backends", "trace", "autograd"),     # forms.py reads ops, module by module
    "nn":       LOWER,
}
REST = (*LOWER, "nn", "compat.missing")             # what amp, serialization, testing, vision… may import
# Those of the rest that stand above others of it, from below to above.
ALLOWED["compat.missing"] = LOWER
ALLOWED |= {room: (*REST, *more) for room, more in {
    "distributed": ("futures",),
    "version":     ("torch_version",),
    "hub":         ("serialization",),
    "storage":     ("serialization",),
    "cpu":         ("amp",),                        # PyTorch's names for autocast are there too
    "lens":        ("watch",),
    "config":      ("watch",),                      # one of its settings switches it on
    "compat.torchaudio": (),
    "compat._library": ("amp", "compat.torchaudio", "compiler", "testing", "vision"),
    "_ops":        ("compat._library",),
    "library":     ("compat._library", "_ops"),
    "jit":         ("compat._library", "futures", "overrides"),
    "utils":       ("compat._library", "_ops", "hub"),
    "optim":       ("utils._foreach_utils", "watch"),
    "data":        ("hub", "serialization", "utils.data", "vision"),
    "profiler":    ("compat._library",),
    "memory":      ("compat._library", "profiler"),
    "cuda":        ("amp", "compiler", "memory"),
    "reporting":   ("lens", "memory", "optim", "profiler", "watch"),
}.items()}
EXTRA = {                                           # single modules that may import more, and why
    "nn.parallel.distributed": ("distributed",),    # DistributedDataParallel, which PyTorch has among the layers
    "profiler.autograd_profiler": ("cuda.nvtx",),   # emit_nvtx, which marks ranges for NVIDIA's profiler
    "reporting.data": ("cli.doctor", "cli.facts"),  # a page says of the machine what `flambeau doctor` does
}
MOST_EXCEPTIONS = 3
MOST_SLOTS = 20                                     # of the door
MOST_INSIDE_FUNCTIONS = 42                          # imports of ours that wait until a function is called
NAMESPACES = ("", "cli", "__main__", "compat", "safetensors")      # these gather everything
# All imports of ours inside functions of the folders that every call goes through, and why.
WHEN_NEEDED = {
    ("tensor.interop", "backends.cuda.exchange"): "memory of a GPU that another library shows, and its driver",
    ("tensor.dlpack", "backends.cuda.exchange"): "the same",
    ("trace.running.runner", "trace.planning.plan"): "what compiles, which the reference executor never needs",
    ("trace.recording.record", "trace.running.interpret"): "the same",
}

MAY_HOLD_STATEMENTS = ast.stmt | ast.excepthandler | ast.match_case


@functools.cache
def modules(package):
    """Every module under `package`: its dotted name inside the package ('' for the top), file and tree."""
    return list(parsed(package))


@pytest.fixture(scope="module", autouse=True)
def trees_are_let_go():
    """A million nodes would stand in the way of every collection after these tests."""
    yield
    modules.cache_clear()


def room_of(name):
    """The room that a module is in: of those in the table the innermost, else the folder or module at the top."""
    parts = name.split(".")
    return next((room for end in range(len(parts), 1, -1) if (room := ".".join(parts[:end])) in ALLOWED), parts[0])


def import_nodes(tree):
    """The import statements of `tree`, each with whether only the type checker runs it."""
    stack = [(tree, False)]
    while stack:
        node, typing_only = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, typing_only
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            stack += [(child, True) for child in node.body]
            stack += [(child, typing_only) for child in node.orelse]
        else:
            stack += [(child, typing_only) for child in ast.iter_child_nodes(node)
                      if isinstance(child, MAY_HOLD_STATEMENTS)]


def targets(node, name, path, package):
    """The modules that an import statement in module `name` reads, as absolute dotted names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    start = node.module or ""
    if node.level:
        own = [package.name, *name.split(".")] if name else [package.name]
        drop = node.level - (path.name == "__init__.py")        # in a package, one dot is the package itself
        start = ".".join(own[:len(own) - drop] + ([start] if start else []))
    # `from .. import base` reads the module base; `from ..base import need` reads the module base too
    return [f"{start}.{alias.name}" if is_module(f"{start}.{alias.name}", package) else start
            for alias in node.names]


@functools.cache
def is_module(dotted, package):
    top, *rest = dotted.split(".")
    path = package.joinpath(*rest)
    return top == package.name and (path.is_dir() or path.with_suffix(".py").exists())


def upward_imports(package, extra=EXTRA):
    """`path:line imports target` for each import under `package` that neither the table nor `extra` allows."""
    wrong = []
    for name, path, tree in modules(package):
        own = room_of(name)
        allowed = (own, *ALLOWED.get(own, REST), *extra.get(name, ()))
        for node, typing_only in import_nodes(tree):
            absolute = isinstance(node, ast.Import) or not node.level
            for target in targets(node, name, path, package):
                top, _, inside = target.partition(".")
                if top == "torch":
                    fine = False
                elif top != package.name or typing_only or own in NAMESPACES:
                    fine = True
                elif absolute:                      # `import flambeau` inside flambeau: the start of a cycle
                    fine = False
                else:
                    fine = any(inside == ok or inside.startswith(ok + ".") for ok in allowed)
                if not fine:
                    wrong.append(f"{path.relative_to(package.parent)}:{node.lineno} imports {target}")
    return wrong


def test_imports_point_downwards():
    assert (PACKAGE / "__init__.py").exists()
    wrong = upward_imports(PACKAGE)
    assert not wrong, "\n".join(wrong)


def test_the_table_of_folders_is_an_order():
    rooms = [*ALLOWED]
    wrong = [f"{room} may import {other}" for place, room in enumerate(rooms) for other in ALLOWED[room]
             if room_of(other) in rooms[place:]]
    assert not wrong, "\n".join(wrong)


def test_exceptions_are_few_and_needed():
    wrong = upward_imports(PACKAGE, {})
    needed = {(name, more) for name, extra in EXTRA.items() for more in extra for line in wrong
              if line.startswith(f"flambeau/{name.replace('.', '/')}.py:") and f" imports flambeau.{more}" in line}
    assert needed == {(name, more) for name, extra in EXTRA.items() for more in extra}
    assert len(EXTRA) <= MOST_EXCEPTIONS


@pytest.mark.parametrize("file, code, wrong", [
    ("base/dtypes.py", "import numpy", None),
    ("base/dtypes.py", "from ..trace import value", "trace.value"),
    ("base/dtypes.py", "from ..trace.value import Storage", "trace.value"),
    ("base/dtypes.py", "def f():\n    from ..trace import value", "trace.value"),
    ("base/dtypes.py", "from . import shapes\nfrom .shapes import numel", None),
    ("base/dtypes.py", "import flambeau", ""),
    ("base/dtypes.py", "from flambeau.base import shapes", "base.shapes"),
    ("base/dtypes.py", "from .. import Tensor", ""),
    ("base/dtypes.py", "import torch.nn", "torch.nn"),
    ("base/dtypes.py", "if TYPE_CHECKING:\n    from ..trace import value", None),
    ("base/dtypes.py", "if TYPE_CHECKING:\n    import torch", "torch"),
    ("base/dtypes.py", "if TYPE_CHECKING:\n    0\nelse:\n    from ..trace import value", "trace.value"),
    ("base/__init__.py", "from .shapes import numel\nfrom . import shapes", None),
    ("base/__init__.py", "from ..trace import value", "trace.value"),
    ("ops/arith.py", "from ..base import dtypes\nfrom ..loops.scalar import exp", None),
    ("ops/arith.py", "from ..loops import scalar", None),
    ("ops/arith.py", "from ..loops import ir", "loops.ir"),
    ("ops/arith.py", "from ..tensor import call", "tensor.call"),
    ("trace/value.py", "from ..ops import arith", "ops.arith"),
    ("autograd/node.py", "from ..trace.value import Storage", None),
    ("autograd/node.py", "from ..backends import memory", "backends.memory"),
    ("tensor/tensor.py", "from ..ops import arith", "ops.arith"),
    ("nn/functional.py", "from ..tensor.call import call", None),
    ("nn/functional.py", "from ..ops import arith", "ops.arith"),
    ("nn/functional.py", "from ..optim import rules", "optim.rules"),
    ("__init__.py", "from .tensor import forms\nfrom . import nn", None),
    ("cli.py", "import flambeau", None),
    ("cli.py", "import torch", "torch"),
])
def test_the_check_itself(tmp_path, file, code, wrong):
    package = tmp_path / "flambeau"
    for name in ("base/dtypes base/shapes loops/ir loops/scalar backends/memory trace/value ops/arith "
                 "autograd/node tensor/tensor tensor/call tensor/forms nn/functional optim/rules"
                 ).split():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (package / file).write_text(code)
    target = wrong if wrong is None or wrong.startswith("torch") else f"flambeau.{wrong}".rstrip(".")
    line = code[:code.find(wrong.split(".")[0])].count("\n") + 1 if wrong else 1
    assert upward_imports(package) == ([] if wrong is None else [f"flambeau/{file}:{line} imports {target}"])


# --- cycles ---------------------------------------------------------------------------------------------------------


def inside_functions(tree):
    """The import statements of `tree` that run only when a function is called."""
    found, stack = set(), [(tree, False)]
    while stack:
        node, inside = stack.pop()
        if inside and isinstance(node, ast.Import | ast.ImportFrom):
            found.add(node)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)
                  if isinstance(child, MAY_HOLD_STATEMENTS)]
    return found


@functools.cache
def import_edges(package):
    """(module, module it imports) → whether only functions import it, for all modules but those that gather names."""
    trees = {name: (path, tree) for name, path, tree in modules(package) if room_of(name) not in NAMESPACES}
    edges: dict = {}
    for name, (path, tree) in trees.items():
        late = inside_functions(tree)
        for node, typing_only in import_nodes(tree):
            for target in targets(node, name, path, package) if not typing_only else ():
                top, _, target = target.partition(".")
                if top == package.name and target in trees and target != name:
                    edges[name, target] = edges.get((name, target), True) and node in late
    return edges


def way_between(edges, start, end):
    """The modules by which `start` comes to import `end`, both among them; None if it does not."""
    reads: dict = {}
    for source, target in edges:
        reads.setdefault(source, []).append(target)
    came_from, ways = {start: None}, [start]
    while ways and end not in came_from:
        here = ways.pop(0)
        for further in reads.get(here, ()):
            if further not in came_from:
                came_from[further] = here
                ways.append(further)
    if end not in came_from:
        return None
    way = [end]
    while came_from[way[-1]] is not None:
        way.append(came_from[way[-1]])
    return way[::-1]


def import_cycles(edges):
    """The cycles that the imports `edges` make: for each import that leads back to its own module, the way round."""
    edges, before = set(edges), None
    while len(edges) != before:                       # what nobody imports, or imports nothing, is in no cycle
        before = len(edges)
        reading, read = {a for a, _ in edges}, {b for _, b in edges}
        edges = {(a, b) for a, b in edges if a in read and b in reading}
    ways = [(source, way_between(edges, target, source)) for source, target in sorted(edges)]
    return [" → ".join([source, *way]) for source, way in ways if way is not None]


def test_no_module_imports_itself_through_others():
    cycles = import_cycles(import_edges(PACKAGE))
    assert not cycles, "\n".join(cycles)


def test_modules_that_calls_go_through_import_at_the_top():
    """What is imported inside a function is a cycle hidden, or a load put off: the second is listed with its reason."""
    inside = {edge for edge, late in import_edges(PACKAGE).items()
              if late and edge[0].split(".")[0] in ("base", "ops", "tensor", "trace", "autograd")}
    assert inside == {*WHEN_NEEDED}


def test_few_imports_wait_for_a_call():
    """Those of what is heavy and rarely needed. All others stand at the head, where a reader looks for them."""
    inside = [f"{path.relative_to(PACKAGE.parent)}:{node.lineno}" for name, path, tree in modules(PACKAGE)
              for node in inside_functions(tree)
              if any(target.split(".")[0] == PACKAGE.name for target in targets(node, name, path, PACKAGE))]
    assert len(inside) <= MOST_INSIDE_FUNCTIONS, "\n".join(sorted(inside))


@pytest.mark.parametrize("codes, cycles", [
    ({"a": "from . import b", "b": "import numpy"}, []),
    ({"a": "from . import b", "b": "from .a import x"}, ["pkg.a → pkg.b → pkg.a", "pkg.b → pkg.a → pkg.b"]),
    ({"a": "from .b import x", "b": "def f():\n    from . import a"},
     ["pkg.a → pkg.b → pkg.a", "pkg.b → pkg.a → pkg.b"]),
    ({"a": "import b", "b": "from .a import x"}, []),            # another package's
    ({"a": "from .b import x", "b": "if TYPE_CHECKING:\n    from . import a"}, []),
    ({"a": "from .b import x", "b": "from . import c", "c": "class K:\n    def f(self):\n        from .a import y"},
     ["pkg.a → pkg.b → pkg.c → pkg.a", "pkg.b → pkg.c → pkg.a → pkg.b", "pkg.c → pkg.a → pkg.b → pkg.c"]),
])
def test_cycles_are_found(tmp_path, codes, cycles):
    (tmp_path / "flambeau" / "pkg").mkdir(parents=True)
    for name, code in codes.items():
        (tmp_path / "flambeau" / "pkg" / f"{name}.py").write_text(code)
    assert import_cycles(import_edges(tmp_path / "flambeau")) == cycles


def test_the_door_is_for_those_who_cannot_import():
    """Note [The door]: each slot is filled by one module, and used by modules that this one is built on."""
    edges, filled, used = import_edges(PACKAGE), {}, {}
    for name, _, tree in modules(PACKAGE):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "door":
                (filled if isinstance(node.ctx, ast.Store) else used).setdefault(node.attr, []).append(name)
    body = next(node.body for _, path, tree in modules(PACKAGE / "base") if path.name == "op.py" for node in tree.body
                if isinstance(node, ast.ClassDef) and node.name == "_Door")
    slots = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    assert filled.keys() == slots and used.keys() == slots and len(slots) <= MOST_SLOTS
    for slot, (filler, *others) in filled.items():
        assert not others, (slot, others)
        for user in used[slot]:
            above = room_of(filler) not in (room_of(user), *ALLOWED.get(room_of(user), REST))
            assert above or way_between(edges, filler, user), f"{user} can import what fills door.{slot}: {filler}"


def test_an_operation_is_declared_once():
    """Two declarations of one name would leave the later one in silence."""
    places: dict = {}
    for path in sorted((PACKAGE / "ops").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name[0].isupper():
                places.setdefault(node.name, []).append(path.name)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice


# --- threads --------------------------------------------------------------------------------------------------------


def child_first(package):
    """`path:line imports target before its_package` where an import takes the lock of a module before that of a package
    which imports the modules inside it.

    See Note [First use] in base/once.py: such a package is named by itself first (`from ..nn import Module`, not `from
    ..nn.modules.module import Module`). What `import flambeau` loads is there before anybody can ask for it.
    """
    trees = {name: (path, tree) for name, path, tree in modules(package)}
    imports: dict = {name: [] for name in trees}          # (line, what is imported first, what is read, in a function)
    for name, (path, tree) in trees.items():
        late = inside_functions(tree)
        for node, typing_only in import_nodes(tree):
            if not typing_only:
                found = [target.partition(".")[2] for target in targets(node, name, path, package)
                         if target.partition(".")[0] == package.name]
                first = [module_of(node, name, path, package)] if isinstance(node, ast.ImportFrom) else found
                imports[name].append((node.lineno, [f for f in first if f in trees], found, node in late))
    direct = {name: {module for _, first, found, late in lines if not late for target in (*first, *found)
                     for module in (target, *ancestors(target))} & trees.keys() for name, lines in imports.items()}
    loads: dict = {}                                      # module → all that is imported when it is

    def loaded_with(start):
        if start not in loads:
            loads[start], left = {start}, [start]
            while left:
                fresh = direct[left.pop()] - loads[start]
                loads[start] |= fresh
                left += fresh
        return loads[start]

    wrong = []
    for name, (path, _) in trees.items():
        there = {*loaded_with(""), name}
        for above in ancestors(name):                     # what it loads of its own is loaded by one thread
            there |= {module for module in loaded_with(above) if inside(module, above)}
        for line, first, found, _ in sorted(imports[name], key=lambda one: (one[3], one[0])):
            for target in set(first) - there:
                owner = next((owner for owner in ancestors(target)
                              if owner not in there and target in loaded_with(owner)), None)
                if owner is not None:
                    wrong.append(f"{path.relative_to(package.parent)}:{line} imports {target} before {owner}")
            there.update(*map(loaded_with, {*first, *found} & trees.keys() - there))
    return wrong


def module_of(node, name, path, package):
    """The module that `from module import …` in module `name` reads first, as a name inside the package."""
    if not node.level:
        return node.module.partition(".")[2] if node.module.partition(".")[0] == package.name else None
    own = name.split(".") if name else []
    drop = node.level - (path.name == "__init__.py")
    return ".".join([*own[:len(own) - drop], *([node.module] if node.module else [])])


def inside(name, package):
    return name.startswith(f"{package}.")


def ancestors(name):
    """The packages that a module is inside of, but for the topmost: a.b of a.b.c."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def test_packages_are_imported_before_what_is_in_them():
    wrong = child_first(PACKAGE)
    assert not wrong, "\n".join(wrong)


OF_ONE_THREAD = {"trace.planning.fuse"}                      # the graph of a plan is that of the thread that makes it


def half_made(tree):
    """Lines that put something into a table of all threads', in functions that go on to change it: another thread may
    have found it."""
    wrong, nested = set(), set()
    for function in ast.walk(tree):                       # those around others first
        if not isinstance(function, ast.FunctionDef) or function in nested:
            continue
        nested.update(ast.walk(function))
        inside = list(ast.walk(function))
        own = {node.arg for node in inside if isinstance(node, ast.arg)}
        own |= {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        put = {target.id: node.lineno for node in inside if isinstance(node, ast.Assign) for target in node.targets
               if isinstance(target, ast.Name) and any(is_shared(other, own) for other in node.targets)}
        wrong |= {put[node.value.id] for node in inside if isinstance(node, ast.Attribute)
                  and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
                  and node.lineno > put.get(node.value.id, node.lineno)}
    return sorted(wrong)


def is_shared(target, own):
    """Whether an entry of a table is assigned that is not the function's own, nor that of its `self`."""
    table = target.value if isinstance(target, ast.Subscript) else None
    if isinstance(table, ast.Attribute):
        return isinstance(table.value, ast.Name) and table.value.id != "self"
    return isinstance(table, ast.Name) and table.id not in own


def test_nothing_is_put_into_a_table_half_made():
    wrong = [f"{path.relative_to(PACKAGE.parent)}:{line}" for name, path, tree in modules(PACKAGE)
             if name not in OF_ONE_THREAD for line in half_made(tree)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code, lines", [
    ("def f(key):\n    made = table[key] = Thing()\n    made.x = 1", [2]),
    ("def f(key):\n    made = Thing()\n    made.x = 1\n    table[key] = made", []),
    ("def f(key):\n    made = table[key] = thing(1)\n    return made", []),
    ("def f(table):\n    made = table[1] = Thing()\n    made.x = 1", []),
    ("def f(entry):\n    made = entry.singles[1] = Thing()\n    made.x = 1", [2]),
])
def test_the_check_of_tables_itself(code, lines):
    assert half_made(ast.parse(code)) == lines


# --- memory ---------------------------------------------------------------------------------------------------------

BELOW = ("base", "loops", "backends")               # these may know addresses, buffers and compilers
BY_ADDRESS = {"data.sql.arrow_c", "data.sql.sqlite_rows"}     # what others give as addresses, by an interface of C's
MACHINERY = {"ctypes", "llvmlite", "cffi"}
MEMORY = {"__array_interface__", "__cuda_array_interface__", "ctypes", "frombuffer", "shares_memory",
          "may_share_memory", "byte_bounds"}


def memory_known_above(package):
    """`path:line name` where a module above the backends imports a compiler, or reads an array's memory itself.

    NumPy's and another array module's functions over whole arrays are fine. What is not: an address, memory laid out
    by hand (`np.ndarray(…)`), a buffer taken for an array. backends/cpu/host.py has these for the CPU, and a Backend
    for its device.
    """
    wrong = []
    for name, path, tree in modules(package):
        if name.split(".")[0] in BELOW or name in BY_ADDRESS:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
                found = {target.partition(".")[0] for target in targets(node, name, path, package)} & MACHINERY
            elif isinstance(node, ast.Attribute):
                found = {ast.unparse(node)} if node.attr in MEMORY else set()
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func) if getattr(node.func, "attr", "") in ("ndarray", "as_strided") else ""
                found = {called} & {"np.ndarray", "numpy.ndarray", "np.lib.stride_tricks.as_strided"}
            else:
                continue
            wrong += [f"{path.relative_to(package.parent)}:{node.lineno} {what}" for what in sorted(found)]
    return wrong


def test_memory_is_known_to_backends_alone():
    wrong = memory_known_above(PACKAGE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file, code, wrong", [
    ("tensor/tensor.py", "import ctypes", "ctypes"),
    ("tensor/tensor.py", "def f():\n    from llvmlite import ir", "llvmlite"),
    ("tensor/tensor.py", "import numpy as np\nx = np.frombuffer(b'')", "np.frombuffer"),
    ("tensor/tensor.py", "import numpy as np\nx = np.ndarray((2,), 'u1', b'ab')", "np.ndarray"),
    ("trace/value.py", "a = x.array.__array_interface__['data']", "x.array.__array_interface__"),
    ("tensor/tensor.py", "a = x.array.ctypes.data", "x.array.ctypes"),
    ("tensor/tensor.py", "import mmap", None),
    ("backends/cpu/host.py", "import ctypes", None),
    ("tensor/tensor.py", "import numpy as np\nx = np.empty(3)\nisinstance(x, np.ndarray)", None),
])
def test_the_check_of_memory_itself(tmp_path, file, code, wrong):
    package = tmp_path / "flambeau"
    (package / file).parent.mkdir(parents=True)
    (package / file).write_text(code)
    found = memory_known_above(package)
    assert [line.split(" ", 1)[1] for line in found] == ([] if wrong is None else [wrong])


# --- compilers ------------------------------------------------------------------------------------------------------

# What is neither a device's interface nor the same on all of them: the CPU's way of making and running machine code.
HOW_THE_CPU_COMPILES = ("backends.cpu", "backends.kernel_store",
                        *(f"loops.{name}" for name in "emit llvm schedule spelling target".split()))
OF_THE_CPU_FOR_ALL = "backends.cpu.host", "backends.cpu.memory", "backends.cpu.random"
ABOUT_THE_CPU = {                                   # settings of the processor, and what people want to know of it
    "": ("threads",), "config": ("threads", "machine_code"), "cli.facts": ("threads", "machine_code", "lapack"),
    "cli.precompile": ("machine_code",), "utils.data._utils.processes": ("threads",), "profiler.machine": ("threads",),
    "utils.benchmark.utils.common": ("threads",), "data.sql.sqlite_rows": ("machine_code",),
}
ABOUT_THE_STORE = {"cli.facts": ("files",), "cli.precompile": ("precompiled",),
                   "cli.package_kernels": ("package_kernels",)}


def is_in(target, *modules):
    """Whether a module is one of `modules`, or inside of one."""
    return any(target == one or target.startswith(one + ".") for one in modules)


def compilers_known_above(package):
    """`path:line imports target` where a module above the backends imports what belongs to one of them."""
    wrong = []
    for name, path, tree in modules(package):
        if name.split(".")[0] in BELOW:
            continue
        for node, _ in import_nodes(tree):
            for target in targets(node, name, path, package):
                inside = target.partition(".")[2]
                allowed = [f"backends.cpu.{known}" for known in ABOUT_THE_CPU.get(name, ())]
                allowed += [f"backends.kernel_store.{known}" for known in ABOUT_THE_STORE.get(name, ())]
                if is_in(inside, *HOW_THE_CPU_COMPILES) and not is_in(inside, *OF_THE_CPU_FOR_ALL, *allowed):
                    wrong.append(f"{path.relative_to(package.parent)}:{node.lineno} imports {inside}")
    return wrong


def test_how_a_device_compiles_is_known_to_it_alone():
    wrong = compilers_known_above(PACKAGE)
    assert not wrong, "\n".join(wrong)
    for name in (*HOW_THE_CPU_COMPILES, *OF_THE_CPU_FOR_ALL):
        assert is_module(f"flambeau.{name}", PACKAGE), f"{name} has moved"


@pytest.mark.parametrize("file, code, wrong", [
    ("trace/planning/plan.py", "from ...backends.cpu import program", "backends.cpu.program"),
    ("trace/plan.py", "def f():\n    from ..backends.cpu.machine_code import function", "backends.cpu.machine_code"),
    ("trace/planning/plan.py", "from ...loops.llvm import render", "loops.llvm"),
    ("trace/planning/plan.py", "from ...loops.ir import Kernel\nfrom ...backends.backend import Backend", None),
    ("compiler/replay.py", "from ..backends.cpu.threads import run", "backends.cpu.threads"),
    ("config.py", "from .backends.cpu import machine_code, threads", None),
    ("backends/cpu/program.py", "from . import machine_code", None),
])
def test_the_check_of_compilers_itself(tmp_path, file, code, wrong):
    package = tmp_path / "flambeau"
    of_the_cpu = [f"backends/cpu/{part}.py" for part in ("program", "machine_code", "threads")]
    for name in (file, *of_the_cpu, "loops/llvm.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / file).write_text(code)
    found = compilers_known_above(package)
    assert [line.split(" imports ")[1] for line in found] == ([] if wrong is None else [wrong])


# --- devices --------------------------------------------------------------------------------------------------------

# Where the word "cuda" may stand, or CUDA's software be asked, besides its own rooms (backends, cuda), and why.
SAYS_CUDA = {
    "": "torch.cuda is a name of PyTorch's", "compat._library.aten": "names of arguments of PyTorch's operators",
    "compat._library.overloads": "PyTorch's dispatch keys", "compat._C": "PyTorch's dispatch keys",
    "version": "torch.version.cuda",
    "base.spec": "the device types that PyTorch's error text lists", "watch.graphs": "the method Module.cuda()",
    "tensor.tensor": "Tensor.is_cuda", "tensor.storage": "UntypedStorage.is_cuda and .cuda()",
    "ops.convert": "Tensor.cuda()", "tensor.interop": "__cuda_array_interface__, which is for CUDA's memory alone",
    "tensor.dlpack": "capsules of CUDA's memory that another library gives",
    "ops.fft": "PyTorch has transforms of float16 on CUDA alone",
    "amp.autocast_mode": "defaults and older names of PyTorch's: set_autocast_gpu_dtype()",
    "amp.grad_scaler": "PyTorch's default", "autograd.graph": "PyTorch's default",
    "tensor.generators": "PyTorch's default",
    "profiler.events": "PyTorch's names of columns", "profiler.autograd_profiler": "PyTorch's use_cuda=True",
    "optim.optimizer": "PyTorch's list of devices with fused steps",
    "utils._foreach_utils": "PyTorch's list of devices with steps over many tensors",
    "distributed.distributed_c10d": "PyTorch's table of backends by device",
    "serialization.locations": "PyTorch's words for a file of a device that is not there",
    "serialization.names": "validate_cuda_device()", "cli.facts": "the links of CUDA's chain, which people ask about",
    "cli.doctor": "the same", "cli.info": "the same",
}


def cuda_known_above(package):
    """{module: lines} where one outside the device's own rooms has the word "cuda", or "cuda:0", or imports from
    backends/cuda. Elsewhere a device is asked what it can do (`Backend`), and the registry what there is."""
    found: dict = {}
    for name, path, tree in modules(package):
        if name.split(".")[0] in ("backends", "cuda"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                says = node.value == "cuda" or node.value.startswith("cuda:")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                says = any(is_in(target.partition(".")[2], "backends.cuda")
                           for target in targets(node, name, path, package))
            else:
                continue
            if says:
                found.setdefault(name, []).append(node.lineno)
    return found


def test_devices_are_asked_and_not_named():
    found = cuda_known_above(PACKAGE)
    wrong = [f"{name}: {lines}" for name, lines in found.items() if name not in SAYS_CUDA]
    assert not wrong, "\n".join(wrong)
    assert not SAYS_CUDA.keys() - found.keys(), "these have no need to"


@pytest.mark.parametrize("file, code, says", [
    ("tensor/tensor.py", "def f(x):\n    return x.device.type == 'cuda'", True),
    ("tensor/tensor.py", "where = f('cuda:0')", True),
    ("tensor/tensor.py", "from ..backends.cuda import driver", True),
    ("tensor/tensor.py", '"""Not on cuda."""\nfrom ..backends import devices', False),
    ("cuda/memory.py", "from ..backends.cuda import driver\nhere = 'cuda'", False),
])
def test_the_check_of_devices_itself(tmp_path, file, code, says):
    package = tmp_path / "flambeau"
    for one in (file, "backends/cuda/driver.py"):
        (package / one).parent.mkdir(parents=True, exist_ok=True)
        (package / one).touch()
    (package / file).write_text(code)
    assert bool(cuda_known_above(package)) is says

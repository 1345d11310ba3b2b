"""Run a program as `python` would, with Flambeau under the name of torch."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
from types import ModuleType

from ..base.core import source_of
from ..base.errors import PACKAGE
from .facade import install_as_torch


def run(argv):
    """Run `script arguments…`, `-m module arguments…` or `-c code arguments…`; the exit code.

    The program sees what it would under `python`: `__main__`, `__file__`, `sys.argv`, `sys.path[0]`.
    """
    report = None
    if argv[0] == "--report":
        if len(argv) < 3:
            print("flambeau run: --report run.html, and then what is to run", file=sys.stderr)
            return 2
        report, argv = argv[1], argv[2:]
    if argv[0] in ("-m", "-c") and len(argv) < 2:
        print(f"flambeau run: Argument expected for the {argv[0]} option", file=sys.stderr)
        return 2
    if argv[0].startswith("-") and argv[0] not in ("-m", "-c", "-"):
        print(f"flambeau run: unknown option {argv[0]}; give a script, -m module or -c code", file=sys.stderr)
        return 2
    try:
        if argv[0] == "-m":
            install_as_torch()                    # finding a module imports the packages around it
            module, code = of_module(argv[1], argv[2:])
        elif argv[0] == "-c":
            module, code = of_text(argv[1], "<string>", ["-c", *argv[2:]], "")
        elif argv[0] == "-":
            module, code = of_text(sys.stdin.read(), "<stdin>", argv, "")
        else:
            module, code = of_file(argv[0], argv)
    except NotFound as error:
        print(f"flambeau run: {error}", file=sys.stderr)
        return 2 if argv[0] != "-m" else 1
    except SyntaxError as error:
        _hide_us(error)
        raise
    install_as_torch()
    sys.modules["__main__"] = module
    try:
        with _reported(report):
            exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        _hide_us(error)
        raise
    return 0


@contextlib.contextmanager
def _reported(path):
    """The program with a report about it, if there is to be one; its path is the last thing said."""
    if path is None:
        yield
        return
    from ..reporting import report
    with report(path) as run:
        yield
    print(f"report: {os.path.abspath(run.path)}", file=sys.stderr)


class NotFound(Exception):
    """What is to run is not there."""


def of_file(path, argv):
    """(module, code) of a script; of the `__main__.py` in a folder."""
    script = path
    if os.path.isdir(path):
        script = os.path.join(path, "__main__.py")
        if not os.path.exists(script):
            raise NotFound(f"can't find '__main__' module in {os.path.abspath(path)!r}")
    try:
        with io.open_code(os.path.abspath(script)) as file:
            text = file.read()
    except OSError as error:
        raise NotFound(f"can't open file {os.path.abspath(path)!r}: [Errno {error.errno}] {error.strerror}") from None
    name = os.path.abspath(script)
    start = os.path.realpath(path) if os.path.isdir(path) else os.path.dirname(os.path.realpath(path))
    module, code = of_text(text, name, argv, start)
    module.__dict__.update(__file__=name, __cached__=None,
                           __loader__=importlib.machinery.SourceFileLoader("__main__", name))
    return module, code


def of_text(text, name, argv, start):
    """(module, code) of a program's text."""
    _settle(argv, start)
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=sys.modules["builtins"], __spec__=None, __package__=None, __annotations__={})
    return module, compile(text, name, "exec", dont_inherit=True)


def of_module(name, rest):
    """(module, code) of a module by its name; of a package, its `__main__`."""
    _settle(["-m", *rest], os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise NotFound(f"No module named {name}.__main__; {name!r} is a package and cannot be directly "
                               "executed")
    except ModuleNotFoundError as error:
        raise NotFound(f"Error while finding module specification for {name!r} ({error})") from None
    if spec is None:
        raise NotFound(f"No module named {name}")
    code = spec.loader.get_code(spec.name) if hasattr(spec.loader, "get_code") else None
    if code is None:
        raise NotFound(f"No code object available for {name}")
    sys.argv[0] = spec.origin
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=sys.modules["builtins"], __spec__=spec, __package__=spec.parent,
                           __loader__=spec.loader, __file__=spec.origin, __cached__=spec.cached)
    return module, code


def _settle(argv, start):
    """Give the process the arguments and the first place to import from that the program expects."""
    sys.argv[:] = argv
    if not sys.flags.safe_path:
        sys.path[:1] = [start]


def _hide_us(error):
    """If `error` ends the process, its traceback starts with the program, as it would under `python`."""
    found = error.__traceback__
    while found is not None and source_of(found.tb_frame.f_code.co_filename).startswith(
            (PACKAGE, "<frozen importlib")):
        found = found.tb_next
    shown = sys.excepthook

    def show(cls, value, traceback):
        if value is error:
            traceback = value.__traceback__ = found
        shown(cls, value, traceback)
    sys.excepthook = show

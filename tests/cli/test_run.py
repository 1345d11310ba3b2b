"""`flambeau run`: real little PyTorch programs, each in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.compat import missing
from flambeau.torch_version import TorchVersion
from tests.patience import PATIENCE
from tests.thorough import sample, takes_seconds

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(flambeau.__file__).parents[1]


def run(*arguments, cwd=None, text=None, command=("-m", "flambeau", "run")):
    """A finished `flambeau run …`, whose program finds this Flambeau and no other."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *command, *map(str, arguments)], cwd=cwd or PROGRAMS, input=text, text=True,
                          capture_output=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path})


def numbers(text, name):
    return [float(found) for found in re.findall(rf"{name}: (\S+)", text)]


# --- programs -------------------------------------------------------------------------------------------------------


def test_a_trainer(tmp_path):
    done = run("digits.py", "--epochs", "3", "--save", tmp_path / "digits.pt")
    assert done.returncode == 0, done.stderr
    losses = numbers(done.stdout, "loss")
    assert losses[-1] < losses[0] and "<All keys matched successfully>" in done.stdout
    assert "saved: True epoch: 3" in done.stdout and "parameters: 3690" in done.stdout
    assert (tmp_path / "digits.pt").exists()


@pytest.mark.parametrize("program, count", sample([("recurrent.py", 8), ("variational.py", 5), ("mixed.py", 10)], 2))
def test_losses_fall(program, count):
    done = run(program)
    assert done.returncode == 0, done.stderr
    losses = numbers(done.stdout, "loss")
    assert len(losses) == count and losses[-1] < losses[0]


@takes_seconds
def test_an_adversarial_pair():
    done = run("gan.py")
    assert done.returncode == 0, done.stderr
    assert len(numbers(done.stdout, " d")) == len(numbers(done.stdout, " g")) == 4
    assert all(0.3 < loss < 1.2 for loss in numbers(done.stdout, " g"))


def test_what_programs_touch():
    done = run("touching.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n") and "not there: No module named 'torch.no_such_module'" in done.stdout
    assert "model: False False torch.Size([2, 3])" in done.stdout and "cuda: False 0 0 0" in done.stdout
    assert "gradcheck, module and function: True True" in done.stdout


def test_the_names_from_inside():
    done = run("facade.py", command=())
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_every_module_of_pytorch():
    done = run("modules.py", command=())
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_what_is_missing():
    done = run("missing.py", "all")
    assert done.returncode == 0 and done.stdout.startswith("imported\n"), done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines()[1:])
    source = (PROGRAMS / "missing.py").read_text().splitlines()
    for use, name, hint in (("script", "torch.jit.load", "state_dict"),
                            ("subclass", "torch.export.ExportedProgram", ""),
                            ("attribute", "torch.export.Dim.AUTO", ""),
                            ("context", "torch.autograd.profiler_legacy.profile", "torch.profiler.profile"),
                            ("timer", "torch.utils.benchmark.Fuzzer", "hypothesis"),
                            ("process_group", "torch.distributed.TCPStore", "one process"),
                            ("export", "torch.onnx.export", "state_dict")):
        assert said[use].startswith(f"NotImplementedError: Flambeau has no {name}") and hint in said[use]
        line = int(re.search(r"missing\.py:(\d+)", said[use])[1])
        assert name.split(".")[-1] in source[line - 1]
    assert said["function"].startswith("AttributeError: module 'torch' has no attribute 'sparse_csr_tensor'")
    assert said["method"].startswith("AttributeError: 'Tensor' object has no attribute 'to_sparse'")
    done = run("missing.py", "export")
    assert done.returncode == 1 and done.stderr.splitlines()[1].endswith(", in <module>")
    assert done.stderr.splitlines()[-1].startswith("NotImplementedError: Flambeau has no torch.onnx.export")


def test_processes():
    done = run("spawning.py", "spawn")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 True True\n1 True True\nTrue\n"


# --- as python would ------------------------------------------------------------------------------------------------


def test_arguments_and_places(tmp_path):
    folder = tmp_path / "some where"
    folder.mkdir()
    (folder / "helper.py").write_text("value = 7\n")
    (folder / "script.py").write_text("import helper, sys\n"
                                      "print(sys.argv, __name__, __file__, sys.path[0], helper.value)\n"
                                      "sys.exit(3)\n")
    done = run("some where/script.py", "-m", "--epochs=3", "-c", cwd=tmp_path)
    path = str(folder / "script.py")
    assert done.stdout.split("\n")[0] == f"{['some where/script.py', '-m', '--epochs=3', '-c']} __main__ {path} " \
                                         f"{os.path.realpath(folder)} 7"
    assert done.returncode == 3
    (folder / "__main__.py").write_text("import helper\nprint(__file__, helper.value)\n")
    assert run("some where", cwd=tmp_path).stdout == f"{folder / '__main__.py'} 7\n"


def test_modules_and_lines_of_code(tmp_path):
    done = run("-m", "package", "a", "-b")
    assert done.stdout == "__main__ package package.__main__ ['a', '-b'] 4.0\n", done.stderr
    (tmp_path / "torch.py").write_text("real = True\n")       # a torch that lies beside the program is not found
    done = run("-c", "import sys, torch; print(sys.argv, repr(sys.path[0]), torch.ones(2).sum().item())", "x",
               cwd=tmp_path)
    assert done.stdout == "['-c', 'x'] '' 2.0\n"
    assert run("-", text="import sys\nprint(sys.argv)").stdout == "['-']\n"


ENDINGS = {
    "error": ("def f():\n    return 1 / 0\nf()", 1, "", "ZeroDivisionError: division by zero"),
    "syntax": ("x = = 2", 1, "", "SyntaxError: invalid syntax"),
    "interrupt": ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt"),
    "hook": ("import sys\nsys.excepthook = lambda kind, value, tb: print('mine', kind.__name__, tb.tb_lineno)\n1 / 0",
             1, "mine ZeroDivisionError 3\n", None),
}


@pytest.mark.parametrize("ending", sample(ENDINGS, 2))
def test_errors_end_as_they_do_under_python(ending):
    code, status, out, last = ENDINGS[ending]
    done = run("-c", code)
    assert (done.returncode, done.stdout) == (status, out) and "flambeau" not in done.stderr
    assert done.stderr.splitlines()[-1:] == ([last] if last else [])
    assert ending != "error" or done.stderr.splitlines()[0] == "Traceback (most recent call last):"


def test_what_cannot_run(capsys):
    from flambeau.cli import main
    for arguments, words in ((["no_such_file.py"], "can't open file"), (["-m"], "Argument expected for the -m"),
                             (["-x"], "unknown option -x"), ([], "what is to run?"),
                             ([str(PROGRAMS)], "can't find '__main__' module in")):
        assert main(["run", *arguments]) == 2
        said = capsys.readouterr()
        assert words in said.err and not said.out
    done = run("-m", "package.part.no")
    assert done.returncode == 1 and "package.part" in done.stderr and "Traceback" not in done.stderr


def test_the_real_one_is_not_replaced_half_way(tmp_path):
    (tmp_path / "torch.py").write_text("real = True\n")
    done = run("-c", "import torch, flambeau; flambeau.install_as_torch()", command=(), cwd=tmp_path)
    assert done.returncode == 1 and "PyTorch is already imported (from" in done.stderr
    assert "before anything imports torch" in done.stderr


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command(capsys):
    from flambeau.cli import main
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"flambeau {flambeau.__version__}\n"
    for arguments in ([], ["--help"], ["run", "--help"]):
        assert main(arguments) == 0 and "flambeau run script.py" in capsys.readouterr().out
    assert main(["train.py"]) == 2 and "flambeau run train.py" in capsys.readouterr().err
    assert main(["nonsense"]) == 2 and "'nonsense' is not a command" in capsys.readouterr().err
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    for word in ("flambeau", "Python", "numpy", "llvmlite", "processor", "compiles for", "vectors", "features",
                 "threads", "core", "executor", "cache directory"):
        assert re.search(rf"^{word} +\S", said, re.MULTILINE), word
    assert flambeau.__version__ in said


# --- parts ----------------------------------------------------------------------------------------------------------


def test_something_missing_can_be_named():
    from typing import Optional, Union
    found = missing.MissingModule("torch.export").Dim
    assert repr(found) == "<torch.export.Dim, which Flambeau has not>" and found.__name__ == "Dim"
    assert found is missing.MissingModule("torch.export").Dim
    assert not isinstance(3, found) and not issubclass(int, found) and not hasattr(found, "__wrapped__")
    assert found in Optional[found].__args__ and found in Union[int, found].__args__  # noqa: UP007, UP045
    assert found in (found | None).__args__ and found in (None | found).__args__
    assert found[int] is found
    for use in (lambda: found(), lambda: found.nodes, lambda: list(found)):
        with pytest.raises(NotImplementedError, match=r"Flambeau has no torch\.export\.Dim"):
            use()

    class Below(flambeau.nn.Module, found):
        def __new__(cls):
            return object.__new__(cls)
    with pytest.raises(NotImplementedError, match=r"torch\.export\.Dim \(used at test_run\.py:\d+"):
        Below()
    with pytest.raises(NotImplementedError, match="torch.export.Dim"), found:
        pass
    with pytest.raises(AttributeError, match="no attribute '__wrapped__'"):
        missing.MissingModule("torch.export").__wrapped__  # noqa: B018
    with pytest.raises(AttributeError, match="Flambeau has no torch.lobpcg") as caught:
        missing.of_torch("lobpcg")
    assert caught.value.name == "lobpcg" and missing.of_torch("export").__name__ == "torch.export"


@pytest.mark.parametrize("smaller, larger", [("1.10", "2.2"), ("2.9.1", "2.13.0"), ("2.13.0a0", "2.13.0"),
                                             ("2.13.0rc1", "2.13.0"), ("2.13", "2.13.0+flambeau"), ("1.0", "1.0.post1"),
                                             ("2.13.0.dev20260101", "2.13.0a0")])
def test_versions_are_ordered(smaller, larger):
    a, b = TorchVersion(smaller), TorchVersion(larger)
    assert a < b and a < larger and a <= b and b > a and b >= smaller and a != b
    assert not a > b and not a == b


def test_versions_are_texts():
    version = TorchVersion("2.13.0+flambeau")
    assert isinstance(version, str) and version.split(".")[0] == "2" and version == "2.13.0+flambeau"
    assert version > (2, 9) and version < (3, 0) and TorchVersion("2.13") == "2.13.0" and version != "2.13.0"
    assert hash(version) == hash("2.13.0+flambeau") and version != "not a version"


def test_safetensors_for_torch(tmp_path):
    """Where the library is not installed, `safetensors.torch` is ours."""
    code = ("import importlib.machinery as m\nfind = m.PathFinder.find_spec\n"
            "m.PathFinder.find_spec = lambda name, *a, **k: None if name[:4] == 'safe' else find(name, *a, **k)\n"
            "import torch\nfrom safetensors.torch import load_file, save_file\n"
            "import safetensors.torch as st, flambeau\n"
            f"save_file({{'a': torch.ones(3)}}, r'{tmp_path / 'a.safetensors'}')\n"
            f"print(load_file(r'{tmp_path / 'a.safetensors'}')['a'].sum().item(), st.__name__)")
    command = [sys.executable, "-m", "flambeau", "run", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "3.0 flambeau.safetensors\n"), done.stderr

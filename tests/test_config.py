"""`flambeau.config`: every switch can be seen and set, and what makes no sense is refused."""
import os
import subprocess
import sys
import threading

import pytest

import flambeau as torch
from flambeau.backends.cpu import machine_code, threads
from flambeau.base import settings
from flambeau.trace.recording.record import current
from tests.patience import PATIENCE

NAMES = list(settings.SWITCHES)


@pytest.fixture(autouse=True)
def as_it_was():
    """Every switch as it stood before the test."""
    with torch.config.using(**{name: getattr(torch.config, name) for name in NAMES}):
        yield


# --- looking ----------------------------------------------------------------------------------------------------------


def test_every_setting_is_a_switch():
    public = {name for name, held in vars(settings).items()
              if not name.startswith("_") and name.islower() and not isinstance(held, type(os))}
    elsewhere = {"deterministic"}                            # use_deterministic_algorithms()
    at_the_start = {"expect_device", "precompiled"}          # what a process is, from its first line on
    assert public - elsewhere - at_the_start == set(NAMES)


def test_every_variable_is_one_that_is_read():
    with open(settings.__file__) as file:
        source = file.read().split("SWITCHES = ")[0]
    for variable, says in settings.SWITCHES.values():
        assert says and (variable is None or f'"{variable}"' in source)


def test_reading():
    assert torch.config.executor == settings.executor
    assert torch.config.trace_bytes == settings.trace_bytes
    assert torch.config.num_threads == torch.get_num_threads()
    assert [switch.name for switch in torch.config.switches()] == NAMES
    first = torch.config.switches()[0]
    assert (first.name, first.value, first.variable) == ("executor", settings.executor, "FLAMBEAU_EXECUTOR")
    assert repr(first).startswith(f"executor = {settings.executor!r} (FLAMBEAU_EXECUTOR): what runs traces")


def test_it_prints_as_a_table():
    torch.config.trace_instructions = 777
    lines = repr(torch.config).splitlines()
    assert lines[0].split() == ["switch", "value", "environment", "variable"] and len(lines) == 1 + 2 * len(NAMES)
    assert ["trace_instructions", "777", "FLAMBEAU_TRACE_INSTRUCTIONS"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 130 or len(settings.object_dir) > 40
    assert str(torch.config) == repr(torch.config)


def test_it_lists_its_switches_and_is_a_module():
    assert set(NAMES) < set(dir(torch.config)) and "using" in dir(torch.config)
    import flambeau.config as module
    assert module is torch.config


# --- setting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, value", [
    ("executor", "reference"), ("executor", "native"), ("executor", "auto"), ("trace_instructions", 5),
    ("trace_bytes", 1 << 20), ("cache_bytes", -1), ("cache_bytes", 0), ("object_bytes", 0), ("num_threads", 1)])
def test_setting(name, value):
    setattr(torch.config, name, value)
    assert getattr(torch.config, name) == value


@pytest.mark.parametrize("name, value, words", [
    ("executor", "fast", "must be one of 'auto', 'reference', 'native'"), ("executor", None, "must be one of"),
    ("trace_instructions", 0, "an integer of at least 1"), ("trace_instructions", 2.0, "an integer of at least 1"),
    ("trace_bytes", "1", "an integer of at least 1"), ("num_threads", 0, "an integer of at least 1"),
    ("num_threads", True, "an integer of at least 1"), ("cache_bytes", 0.5, "must be an integer$"),
    ("object_bytes", -1, "an integer of at least 0"), ("object_dir", 3, "must be the path of a folder, or ''"),
    ("object_dir", b"x", "must be the path of a folder")])
def test_what_makes_no_sense_is_refused(name, value, words):
    before = getattr(torch.config, name)
    with pytest.raises(ValueError, match=words) as caught:
        setattr(torch.config, name, value)
    assert str(caught.value).startswith(f"config.{name} = {value!r}: ")
    assert getattr(torch.config, name) == before


@pytest.mark.parametrize("use", [lambda: torch.config.exekutor, lambda: setattr(torch.config, "exekutor", "native"),
                                 lambda: torch.config.using(exekutor="native").__enter__()])
def test_an_unknown_switch(use):
    with pytest.raises(AttributeError, match=f"config has no switch 'exekutor': it has {', '.join(NAMES)}$"):
        use()


def test_using_puts_everything_back():
    before = [getattr(torch.config, name) for name in NAMES]
    with pytest.raises(KeyError), torch.config.using(executor="reference", trace_instructions=3, num_threads=1):
        assert (torch.config.executor, torch.config.trace_instructions) == ("reference", 3)
        raise KeyError
    assert [getattr(torch.config, name) for name in NAMES] == before


def test_using_sets_all_or_none():
    before = torch.config.executor
    with pytest.raises(ValueError, match="trace_bytes"), torch.config.using(executor="reference", trace_bytes=0):
        pass
    assert torch.config.executor == before


def test_using_decorates():
    @torch.config.using(executor="reference")
    def asked():
        return torch.config.executor

    torch.config.executor = "native"
    assert (asked(), asked(), torch.config.executor) == ("reference", "reference", "native")


# --- what the switches do ---------------------------------------------------------------------------------------------


def test_a_block_runs_on_the_executor_it_names():
    pytest.importorskip("llvmlite")
    torch.config.executor = "native"
    x = torch.arange(5.0)
    with torch.config.using(executor="reference"):
        assert not current().code                       # what was recorded before ran before
        y = x * 2 + 1
    assert not current().code and torch.plans.last() is None
    with torch.config.using(executor="native"):
        z = x * 2 + 1
    assert not current().code and len(torch.plans.last().kernels) == 1
    assert y.tolist() == z.tolist() == [1, 3, 5, 7, 9]


def test_other_threads_run_before_the_switch():
    recorded, switched, held = threading.Event(), threading.Event(), []

    def work():
        held.append(torch.arange(3.0) + 1)
        recorded.set()
        switched.wait(30)
        held.append(held[0]._storage.value.trace is None)

    thread = threading.Thread(target=work)
    thread.start()
    recorded.wait(30)
    torch.config.executor = "reference"
    switched.set()
    thread.join()
    assert held[1] and held[0].tolist() == [1, 2, 3]


def test_a_trace_grows_no_longer_than_it_says():
    torch.config.trace_instructions = 4
    x = torch.zeros(2)
    for _ in range(20):
        x = x + 1
        assert len(current().code) <= 5
    assert x.tolist() == [20, 20]


def test_threads():
    torch.config.num_threads = 1
    assert torch.get_num_threads() == threads.get_num_threads() == 1
    torch.config.num_threads = 1 << 30
    assert torch.config.num_threads <= max(threads.quota(), 1)


def test_the_folder_of_kernels_can_be_moved(tmp_path):
    pytest.importorskip("llvmlite")
    text = "define i64 @seven() {\n  ret i64 7\n}\n; " + str(tmp_path)
    machine_code.vector_bytes()                                  # LLVM is there, and with it the old folder
    torch.config.object_dir = tmp_path / "kernels"
    assert torch.config.object_dir == str(tmp_path / "kernels")
    machine_code.function("seven", text)
    assert os.listdir(tmp_path / "kernels")
    torch.config.object_dir = ""
    machine_code.function("seven", text + "!")
    assert len(os.listdir(tmp_path / "kernels")) == 1


@pytest.mark.parametrize("variable, given, words", [
    ("FLAMBEAU_EXECUTOR", "fast", "known executors are auto, reference, native"),
    ("FLAMBEAU_TRACE_BYTES", "many", "FLAMBEAU_TRACE_BYTES='many': must be an integer"),
    ("FLAMBEAU_TRACE_INSTRUCTIONS", "1.5", "FLAMBEAU_TRACE_INSTRUCTIONS='1.5': must be an integer")])
def test_a_variable_that_makes_no_sense(variable, given, words):
    done = subprocess.run([sys.executable, settings.__file__], env={**os.environ, variable: given}, capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode and words in done.stderr

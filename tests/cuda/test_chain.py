"""Absence in all its forms: which link of driver → runtime → library → visibility is said to be broken, what mends it,
and when it is said aloud. The links are faked; nothing here needs a GPU, CuPy or NVRTC."""
import os
import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass, field, replace

import pytest

import flambeau as torch
from flambeau.backends.cuda import chain, driver, nvrtc, probe
from flambeau.base.lazy import names_held
from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned


@dataclass
class Machine:
    """What the links find: the defaults are a machine on which everything works, with two devices."""

    gpu: str | None = "/dev/nvidia0"
    version: int | None = 13000                       # of the driver; None: there is none
    packages: dict = field(default_factory=lambda: {"cupy-cuda13x": "14.2.0"})
    nvrtc: bool = True
    code: object = 0                                  # what cuInit says
    count: int = 2                                    # devices in the machine
    visible: str | None = None                        # CUDA_VISIBLE_DEVICES

    def started(self, visible):
        """As the driver does it: indices, of which the first that is none hides itself and the rest."""
        if self.code:
            return self.code, 0
        seen = self.count
        if visible is not None:
            listed = visible.split(",")
            wrong = [i for i, name in enumerate(listed) if not (name.isdigit() and int(name) < self.count)]
            seen = wrong[0] if wrong else len(listed)
        return (0, seen) if seen else (chain.NO_DEVICE, 0)


@pytest.fixture
def machine(monkeypatch):
    """A function that makes this machine look like a Machine, changed as told."""
    def fake(**changes):
        names_held(torch.version).pop("cuda", None)       # what another machine has said
        made = replace(Machine(), **changes)

        def load():
            if made.version is None:
                raise OSError("libcuda.so.1: cannot open shared object file")
            return made

        def version_of(name):
            from importlib.metadata import PackageNotFoundError
            if name not in made.packages:
                raise PackageNotFoundError(name)
            return made.packages[name]

        monkeypatch.setattr(probe, "load", load)
        monkeypatch.setattr(probe, "version", lambda library: library.version)
        monkeypatch.setattr(nvrtc, "is_there", lambda: made.nvrtc)
        monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
        monkeypatch.setattr(chain, "started", made.started)
        monkeypatch.setattr(chain, "_gpu_files", lambda: made.gpu)
        monkeypatch.setattr(chain.importlib.util, "find_spec", lambda name: "there" if made.packages else None)
        monkeypatch.setattr("importlib.metadata.version", version_of)
        if made.visible is None:
            monkeypatch.delenv(chain.VISIBLE, raising=False)
        else:
            monkeypatch.setenv(chain.VISIBLE, made.visible)
        chain.forget()
        return made
    before = driver.use(None)
    try:
        yield fake
    finally:
        driver.use(before)
        monkeypatch.undo()
        chain.forget()


ABSENCE = {
    "no driver, no GPU": (dict(version=None, gpu=None), "driver", "Torch not compiled with CUDA enabled",
                          "libcuda", "pip install 'flambeau[cuda13]'"),
    "no driver for the GPU": (dict(version=None), "driver", "Torch not compiled with CUDA enabled", "/dev/nvidia0",
                              "install NVIDIA's driver, 580 or later"),
    "a driver older than all": (dict(version=11080), "driver", "The NVIDIA driver on your system is too old (found "
                                "version 11080)", "CUDA 11.8", "driver 580 or later"),
    "a driver older than CuPy": (dict(version=12040), "driver", "The NVIDIA driver on your system is too old (found "
                                 "version 12040)", "cupy-cuda13x 14.2.0 is built for CUDA 13",
                                 "pip uninstall -y cupy-cuda13x && pip install 'flambeau[cuda12]'"),
    "no CuPy": (dict(packages={}), "library", "Torch not compiled with CUDA enabled", "CuPy is not installed",
                "pip install 'flambeau[cuda13]'"),
    "no CuPy, an older driver": (dict(packages={}, version=12090), "library", "Torch not compiled with CUDA enabled",
                                 "CuPy is not installed", "pip install 'flambeau[cuda12]'"),
    "CuPy for an older CUDA": (dict(packages={"cupy-cuda11x": "13.6.0"}), "library", "Torch not compiled with CUDA",
                               "cupy-cuda11x 13.6.0 was built for CUDA 11",
                               "pip uninstall -y cupy-cuda11x && pip install 'flambeau[cuda13]'"),
    "CuPy for AMD": (dict(packages={"cupy-rocm-7-0": "14.0.0"}), "library", "Torch not compiled with CUDA enabled",
                     "for AMD's GPUs", "pip uninstall -y cupy-rocm-7-0 && pip install 'flambeau[cuda13]'"),
    "no NVRTC": (dict(nvrtc=False), "runtime", "Torch not compiled with CUDA enabled", "NVRTC",
                 "pip install 'flambeau[cuda13]'"),
    "all hidden": (dict(visible=""), "visibility", "No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES is ''",
                   "unset CUDA_VISIBLE_DEVICES, or set it to some of 0 to 1"),
    "hidden by a wrong index": (dict(visible="7", count=1), "visibility", "No CUDA GPUs are available",
                                "hides the one device", "set it to 0"),
    "a container without devices": (dict(count=0), "visibility", "No CUDA GPUs are available", "shows no device",
                                    "--gpus all"),
    "the fabric manager is down": (dict(code=802), "driver", "CUDA driver initialization failed, error 802",
                                   "system not yet initialized", "systemctl start nvidia-fabricmanager"),
    "an error of no name": (dict(code=777), "driver", "CUDA driver initialization failed, error 777", "says 777",
                            "restart the machine"),
    "the probe dies": (dict(code="the process that asked ended with -11"), "driver", "CUDA driver initialization",
                       "ended with -11", "restart the machine"),
}


@pytest.mark.parametrize("form", ABSENCE)
def test_the_broken_link_is_named_with_what_mends_it(machine, form):
    changes, link, said, fact, mend = ABSENCE[form]
    machine(**changes)
    found = chain.broken()
    assert found.link == link and found.fact.count(fact) == 1 and mend in f"{found.mend}."
    text = str(found)
    assert text.startswith(said) and f"the {link} is broken" in text and "device='cpu'" in text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    again = pickle.loads(pickle.dumps(found))
    assert (str(again), again.link) == (text, link)


REQUESTS = {
    "x.cuda()": lambda: torch.ones(2).cuda(), "x.cuda(1)": lambda: torch.ones(2).cuda(1),
    "to": lambda: torch.ones(2).to("cuda"), "device=": lambda: torch.zeros(2, device="cuda:1"),
    "device(0)": lambda: torch.zeros(2, device=0),
    "Module.cuda": lambda: torch.nn.Linear(1, 1).cuda(), "type": lambda: torch.ones(2).type("torch.cuda.FloatTensor"),
    "FloatTensor": lambda: torch.cuda.FloatTensor(2),
    **{name: lambda name=name: getattr(torch.cuda, name)() for name in (
        "current_device synchronize get_device_name get_device_properties get_device_capability memory_summary "
        "mem_get_info current_stream default_stream init ipc_collect initial_seed get_rng_state cudart utilization "
        "temperature power_draw clock_rate device_memory_used get_per_process_memory_fraction").split()},
    "set_device": lambda: torch.cuda.set_device(0), "device()": lambda: torch.cuda.device(0).__enter__(),
    "set_per_process_memory_fraction": lambda: torch.cuda.set_per_process_memory_fraction(0.5),
    "can_device_access_peer": lambda: torch.cuda.can_device_access_peer(0, 1),
    "set_rng_state_all": lambda: torch.cuda.set_rng_state_all([torch.get_rng_state()]),
    "Stream": lambda: torch.cuda.Stream(), "ExternalStream": lambda: torch.cuda.ExternalStream(1),
    "Event": lambda: torch.cuda.Event(), "CUDAGraph": lambda: torch.cuda.CUDAGraph(),
    "torch.Stream": lambda: torch.Stream("cuda"), "torch.Event": lambda: torch.Event("cuda"),
    "Generator": lambda: torch.Generator("cuda"),
    "accelerator.synchronize": lambda: torch.accelerator.synchronize(),
    "accelerator.current_device_index": lambda: torch.accelerator.current_device_index(),
}


@pytest.mark.parametrize("form", ["no driver for the GPU", "no CuPy", "all hidden"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_any_request_says_what_is_broken(machine, form, request_):
    changes, link, _, fact, mend = ABSENCE[form]
    machine(**changes)
    with pytest.raises((RuntimeError, AssertionError)) as got:
        REQUESTS[request_]()
    assert fact in str(got.value) and mend[1:] in str(got.value)


def test_questions_without_a_device_are_answered(machine):
    machine(version=None, gpu=None)
    cuda = torch.cuda
    assert (cuda.memory_allocated(), cuda.max_memory_reserved(), cuda.memory_stats(), cuda.memory_snapshot()) == (
        0, 0, {}, [])
    assert not cuda.is_initialized() and cuda.get_rng_state_all() == [] and cuda.get_arch_list() == []
    assert cuda.manual_seed(1) is cuda.manual_seed_all(1) is cuda.seed() is cuda.empty_cache() is None
    assert cuda.default_generators == () and not cuda.is_bf16_supported() and not cuda.is_tf32_supported()
    cuda.reset_peak_memory_stats()
    with cuda.stream(None):
        assert not cuda.is_current_stream_capturing()
    assert torch.accelerator.current_accelerator() is None and not torch.accelerator.is_available()
    machine(packages={})
    assert torch.version.cuda is None


def test_a_whole_chain(machine):
    machine()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chain.broken() is None and torch.cuda.is_available() and torch.cuda.device_count() == 2
    assert not torch.cuda.is_initialized()
    assert torch.accelerator.current_accelerator() == torch.device("cuda") and torch.accelerator.device_count() == 2
    machine(visible="1")
    assert torch.cuda.device_count() == 1
    machine(version=13020, packages={"cupy-cuda12x": "14.2.0"})           # a driver runs what is older than it
    assert torch.cuda.is_available() and torch.version.cuda == "13.0"


def test_visibility_is_looked_at_until_cuda_starts(machine, monkeypatch):
    machine()
    assert torch.cuda.device_count() == 2
    monkeypatch.setenv(chain.VISIBLE, "0")
    assert torch.cuda.device_count() == 1


@pytest.mark.parametrize("form, aloud", [
    ("no driver for the GPU", True), ("a driver older than CuPy", True), ("no CuPy", True), ("no NVRTC", True),
    ("hidden by a wrong index", True), ("the fabric manager is down", True),
    ("no driver, no GPU", False), ("all hidden", False)])
def test_a_gpu_that_cannot_be_used_is_told_of_once(machine, form, aloud):
    changes, _, _, fact, mend = ABSENCE[form]
    machine(**changes)
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.device("cuda" if torch.cuda.is_available() else "cpu").type == "cpu"
            torch.accelerator.is_available()
    assert len(got) == aloud
    if aloud:
        text = str(got[0].message)
        assert "has an NVIDIA GPU (/dev/nvidia0)" in text and fact in text and mend[1:] in text
        assert got[0].filename == __file__


def test_what_fails_when_cuda_starts_is_broken_from_then_on(machine, monkeypatch):
    machine()

    def fails(self):
        raise ImportError("libcublas.so.13: cannot open shared object file")
    monkeypatch.setattr(driver.CuPyDriver, "__init__", fails)
    assert torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="libcublas.so.13(?s:.*)pip install --force-reinstall 'flambeau.cuda13.'"):
        torch.ones(1).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0


def test_links_are_shown_to_people(machine):
    machine(packages={})
    shown = dict(chain.links())
    assert list(shown) == list(chain.LINKS)
    assert shown["driver"] == "for CUDA 13.0 and older" and "flambeau[cuda13]" in shown["library"]
    machine()
    assert dict(chain.links()) == {"driver": "for CUDA 13.0 and older", "runtime": "NVRTC 13.0",
                                   "library": "cupy-cuda13x 14.2.0", "visibility": "2 devices"}


# --- nothing faked ---------------------------------------------------------------------------------------------------


def test_the_probe_asks_a_library_in_a_process_of_its_own(tmp_path, monkeypatch):
    """A libcuda that says 2 devices, or 1 where CUDA_VISIBLE_DEVICES is set, made by the C compiler."""
    source = """
        #include <stdlib.h>
        int cuDriverGetVersion(int *v) { *v = 13010; return 0; }
        int cuInit(unsigned f) { return getenv("FAIL") ? atoi(getenv("FAIL")) : 0; }
        int cuDeviceGetCount(int *n) { *n = getenv("CUDA_VISIBLE_DEVICES") ? 1 : 2; return 0; }"""
    (tmp_path / "cuda.c").write_text(source)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "cuda.c"], check=True,
                       timeout=PATIENCE)
    except OSError:
        pytest.skip("no C compiler here")
    code = ("from flambeau.backends.cuda import chain; "
            "print(chain.driver_version(), chain.started(None), chain.started('0'))")
    for fail, want in (({}, "13010 (0, 2) (0, 1)"), ({"FAIL": "802"}, "13010 (802, 0) (802, 0)")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                              env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)} | fail)
        assert done.stdout.strip() == want, done.stderr


def test_asking_imports_nothing_and_starts_nothing():
    code = ("import sys\n"
            "there = set(sys.modules)\n"                     # what other packages have Python import at its start
            "import flambeau as torch\n"
            "found = [name for name in sys.modules if 'cuda' in name and name not in there]\n"
            "assert not found, found\n"
            "torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.manual_seed_all(0)\n"
            "print('cupy' in sys.modules, torch.cuda.is_initialized())")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.stdout.split() == ["False", "False"], done.stderr

"""Every kernel of the suite is compiled by NVRTC, for the two architectures that most GPUs of data centres have.

The rows of tests/ops run on a device that compiles and computes nothing, forward and backward, in every dtype that a
GPU computes with; so nothing here is compared, and no GPU is needed. NVRTC is NVIDIA's own compiler, as a package.
"""
import ctypes
import warnings

import pytest

import flambeau as torch
from flambeau.backends.backend import NotCompiled
from flambeau.backends.cuda import nvrtc

from ..backends.test_toy import stays
from ..ops.rows import ROWS
from ..ops.test_tables import floating
from ..thorough import share
from .simulated import SimulatedDriver, compiler, simulating

pytestmark = [pytest.mark.pinned,
              pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"),
              pytest.mark.skipif(not compiler.is_there(), reason="memory is that of the simulated devices, on Linux")]

ARCHITECTURES = ("sm_80", "sm_90")
SHARES = {"float32": 1, "bfloat16": 3, "float16": 3, "float64": 5}       # of the rows, unless all are asked for


class CompilingDriver(SimulatedDriver):
    """A device whose kernels are compiled, and never run."""

    sources = 0

    def __init__(self):
        super().__init__(devices=1)
        form = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
        self.nothing = form(lambda *arguments: 0)
        self.refused = []

    def versions(self):
        return {**super().versions(), "nvrtc": "{}.{}".format(*nvrtc.version())}

    def compile(self, source, architecture, options=()):
        try:
            for each in ARCHITECTURES:
                assert nvrtc.compile(source, each, options).startswith(b"\x7fELF")
        except NotCompiled as error:
            self.refused.append(f"{error}\n{source}")
            raise
        CompilingDriver.sources += 1
        return b"an image"

    def load(self, index, image): return object()
    def function(self, module, name, shared_bytes=0): return 1
    def launcher(self): return ctypes.cast(self.nothing, ctypes.c_void_p).value


@pytest.fixture(scope="module", autouse=True)
def compiling():
    with simulating(CompilingDriver) as driver, torch.config.using(executor="native", object_dir=""):
        yield driver


def moved(row, dtype):
    made = []
    for t in row.tensors(leaf=bool(row.grad)):
        if t.is_floating_point():
            t = t.detach().to(getattr(torch, dtype)).requires_grad_(t.requires_grad)
        made.append(t if stays(row, t) else t.detach().to("cuda").requires_grad_(t.requires_grad))
    return made


def cases():
    rows = [row for row in ROWS if row.op not in ("cpu", "cuda")]
    return [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for dtype, shares in SHARES.items()
            for row in share(rows, 0, shares)]


@pytest.mark.parametrize("row, dtype", cases())
@pytest.mark.filterwarnings("error:.*mistake in Flambeau")
def test_kernels_compile(row, dtype, compiling):
    compiling.refused.clear()
    inputs = moved(row, dtype)
    try:
        with torch.device("cuda"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, message=r"(?![\s\S]*mistake in Flambeau)")
            made = row.ours(*inputs)
            torch.cuda.synchronize()
            if row.grad and any(f.requires_grad for f in floating(made)):
                sum((f.abs() if f.is_complex() else f).sum() for f in floating(made)).backward()
                torch.cuda.synchronize()
    except (NotImplementedError, RuntimeError, ValueError, IndexError) as error:
        # The numbers mean nothing here, and some operations look at them; what has no half precision says so.
        made = error
    assert not compiling.refused, "\n".join(compiling.refused)
    if isinstance(made, Exception):
        pytest.skip(f"{type(made).__name__}: {str(made).splitlines()[0][:100]}")


def test_kernels_were_compiled():
    """By the rows before, in this process or in another."""
    x = torch.ones(7, 5, device="cuda")
    before = CompilingDriver.sources
    (x * 3 + 1).sum(1)
    y = (x * 3 + 1).sum(1)
    torch.cuda.synchronize()
    assert y.shape == (7,) and CompilingDriver.sources > before

"""Compiling for a GPU: several kernels at once, what is found on the disk again, and what the compiler refuses."""
import gc
import os
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from flambeau.backends.backend import NotCompiled
from flambeau.backends.cuda import code, nvrtc
from flambeau.backends.cuda.calls import HostCall, LaunchCall
from flambeau.base import settings

from .simulated import SimulatedDriver, compiler

simulated = pytest.mark.skipif(not compiler.is_there(), reason="kernels are simulated with g++, on Linux")
with_nvrtc = pytest.mark.skipif(not nvrtc.is_there(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc")

FILL = """
struct Params {{ unsigned long long y; long long n; }};
__device__ inline float helper(long long i) {{ return {factor} * i; }}
extern "C" __global__ void fill(const Params p) {{
    for (long long i = threadIdx.x; i < p.n; i += blockDim.x) ((float *)p.y)[i] = helper(i);
}}"""


def call(factor):
    return LaunchCall(FILL.format(factor=factor), "fill", (1, 1, 1), (32, 1, 1), 0, (4,))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own for compiled kernels."""
    os.chmod(tmp_path, 0o700)
    monkeypatch.setattr(settings, "object_dir", str(tmp_path))
    return tmp_path


@pytest.fixture
def make(folder):
    """Gives devices that nothing was compiled for in this process, with what it is called with as options."""
    made = []

    def backend(kind=SimulatedDriver, **options):
        made.append(kind(devices=1, **options))
        return SimpleNamespace(driver=made[-1], index=0)
    yield backend
    gc.collect()
    for one in made:
        one.close()


def compile_all(backend, *calls):
    """Compile calls; gives (how many texts were compiled, and how many found on the disk)."""
    before = code.compiled, code.loaded
    code.GPUCompilation(backend, [], calls).finish()
    return code.compiled - before[0], code.loaded - before[1]


@simulated
def test_what_was_compiled_is_found_by_the_next_process(make):
    some = [call(factor) for factor in range(5)]
    assert compile_all(make(), *some) == (5, 0)
    later = make()
    assert compile_all(later, some[2]) == (0, 1)              # it was compiled with others
    assert compile_all(later, *some) == (0, 4)
    assert compile_all(later, *some) == (0, 0)                # they are on the device
    assert compile_all(later, *some, call(7)) == (1, 0)


@simulated
def test_texts_that_name_their_kernels_alike(make):
    backend = make()
    kernels = code.kernels_of(backend)
    compile_all(backend, call(1), call(2))
    assert kernels.of_call(call(1)) != kernels.of_call(call(2))


@simulated
def test_another_compiler_or_option_is_another_key(make, monkeypatch):
    compile_all(make(), call(1))

    class Newer(SimulatedDriver):
        def versions(self):
            return {**super().versions(), "nvrtc": "99.0"}

    assert compile_all(make(Newer), call(1)) == (1, 0)
    monkeypatch.setattr(code, "NVRTC_OPTIONS", (*code.NVRTC_OPTIONS, "--extra-device-vectorization"))
    assert compile_all(make(), call(1)) == (1, 0)


class Two(SimulatedDriver):
    """Devices of another architecture."""

    def properties(self, index):
        return super().properties(index)._replace(major=8)


@simulated
def test_another_architecture_is_another_key(make):
    compile_all(make(), call(1))
    assert compile_all(make(Two), call(1)) == (1, 0)


@simulated
def test_a_damaged_file_is_compiled_anew(make, folder):
    compile_all(make(), call(1))
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match="damaged"):
        assert compile_all(make(), call(1)) == (1, 0)
    assert compile_all(make(), call(1)) == (0, 1)


@simulated
def test_an_image_that_cannot_be_loaded_is_compiled_anew(make, folder, monkeypatch):
    backend = make()
    compile_all(backend, call(1))
    later, plain = make(), SimulatedDriver.load
    images = []

    def load(self, index, image):
        images.append(image)
        if len(images) == 1:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        return plain(self, index, image)

    monkeypatch.setattr(SimulatedDriver, "load", load)
    with pytest.warns(UserWarning, match="no kernel image"):
        assert compile_all(later, call(1)) == (1, 0)


@simulated
def test_the_one_that_is_refused_is_told(make):
    backend = make()
    bad = LaunchCall("extern \"C\" __global__ void fill(const Params p) { nonsense(p); }", "fill", (1, 1, 1), (1, 1, 1))
    with pytest.raises(NotCompiled) as caught:
        compile_all(backend, call(1), bad, call(2))
    name, = caught.value.failed
    assert name == code.named(bad.source, "fill")[0] and "nonsense" in caught.value.failed[name]
    assert not caught.value.launches
    assert compile_all(backend, call(1), call(2)) == (0, 0)   # the others were compiled


@simulated
def test_calls_of_libraries_need_no_compiler(make):
    assert compile_all(make(), HostCall(print)) == (0, 0)


@simulated
def test_a_folder_of_nobodys(make, monkeypatch):
    monkeypatch.setattr(settings, "object_dir", "")
    assert compile_all(make(), call(1)) == (1, 0)
    assert compile_all(make(), call(1)) == (1, 0)


@given(st.dictionaries(st.text("ab", min_size=1), st.text("x", min_size=1, max_size=50), min_size=1), st.integers(1, 5))
def test_dealt_out(sources, most):
    batches = code.dealt_out(sources, most)
    assert len(batches) == min(most, len(sources)) and all(batches)
    assert {name: text for batch in batches for name, text in batch.items()} == sources
    lengths = [sum(map(len, batch.values())) for batch in batches]
    assert max(lengths) - min(lengths) <= max(map(len, sources.values()))


# --- NVRTC itself ----------------------------------------------------------------------------------------------------


@with_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_several_texts_are_one_image(architecture):
    named = dict(code.named(FILL.format(factor=factor), "fill") for factor in range(3))
    image = nvrtc.compile(code.together(named.values()), architecture, code.NVRTC_OPTIONS)
    assert image[:4] == b"\x7fELF" and all(name.encode() in image for name in named)


@with_nvrtc
def test_the_options_are_known():
    driver = SimpleNamespace(versions=lambda: {"nvrtc": "{}.{}".format(*nvrtc.version())})
    assert nvrtc.compile(FILL.format(factor=1), "sm_90", code._options(driver))


@with_nvrtc
def test_assembly():
    driver = SimpleNamespace(versions=lambda: {"nvrtc": "{}.{}".format(*nvrtc.version())}, compile=nvrtc.compile)
    text = code.ptx(driver, "sm_90", FILL.format(factor=1))
    assert ".visible .entry fill(" in text and ".target sm_90" in text


@with_nvrtc
def test_products_and_sums_are_not_contracted():
    driver = SimpleNamespace(versions=lambda: {"nvrtc": "{}.{}".format(*nvrtc.version())}, compile=nvrtc.compile)
    text = code.ptx(driver, "sm_90", """
struct Params { unsigned long long x, y, z; };
extern "C" __global__ void one(const Params p) {
    *(float *)p.z = *(float *)p.x * *(float *)p.y + *(float *)p.z / *(float *)p.x;
}""")
    assert "fma" not in text and "div.rn.f32" in text

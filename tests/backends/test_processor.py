"""Which processor kernels are compiled for: what can be named, what is refused, and what follows from it."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite")

import flambeau as torch
from flambeau.backends.cpu import machine_code
from flambeau.backends.cpu.processor import PROCESSOR_LEVELS, choose
from flambeau.loops.target import Target, target_of

X86 = "x86_64-unknown-linux-gnu"
MORE = "aes avx512fp16 avx512bf16 avx512vnni vaes avxvnni gfni amx-tile"
RAPIDS = {**dict.fromkeys([*PROCESSOR_LEVELS["x86_64"]["x86-64-v4"].split(), *MORE.split()], True),
          "sse4a": False, "xop": False}
HASWELL = {name: name in PROCESSOR_LEVELS["x86_64"]["x86-64-v3"].split() for name in RAPIDS}


def chosen(text, features=RAPIDS, cpu="sapphirerapids"):
    return choose(text, X86, cpu, features)


@pytest.mark.parametrize("text, features, target", [
    ("native", RAPIDS, Target(64, fma=True, half=True, rounding=True)),
    ("native", HASWELL, Target(32, fma=True, half=True, rounding=True)),
    ("native,-avx512fp16", RAPIDS, Target(64, fma=True, half=True, rounding=True)),
    ("x86-64-v4", RAPIDS, Target(64, fma=True, half=True, rounding=True)),
    ("x86-64-v3", RAPIDS, Target(32, fma=True, half=True, rounding=True)),
    ("x86-64-v3,-f16c", RAPIDS, Target(32, fma=True, half=False, rounding=True)),
    ("x86-64-v2", RAPIDS, Target(16, fma=False, half=False, rounding=True)),
    ("x86-64", HASWELL, Target(16, fma=False, half=False, rounding=False)),
    ("native,-fma", RAPIDS, Target(32, fma=False, half=True, rounding=True)),       # AVX-512 is built on it
    ("native,-avx", RAPIDS, Target(16, fma=False, half=False, rounding=True)),
    ("x86-64, +avx", RAPIDS, Target(16, fma=False, half=False, rounding=False)),    # which is built on SSE4.2
])
def test_what_is_chosen(text, features, target):
    assert chosen(text, features).target == target._replace(pause="@llvm.x86.sse2.pause()")


def test_what_llvm_is_told():
    goal = chosen("native,-avx512fp16")
    assert goal.cpu == "sapphirerapids"                                   # whose timing it is
    assert "-avx512fp16" in goal.flags.split(",") and "+avx512f" in goal.flags.split(",")
    level = chosen("x86-64-v3")
    assert level.cpu == "x86-64-v3" and level.on == set(PROCESSOR_LEVELS["x86_64"]["x86-64-v3"].split())
    assert {flag[1:] for flag in level.flags.split(",")} == set(RAPIDS)       # what is not on is off
    assert not any(name.startswith("avx") for name in chosen("native,-sse4.1").on)
    assert chosen("native,-avx512f").on & {"avx512vl", "avx512fp16", "avx512vnni"} == set()


@pytest.mark.parametrize("text, features, words", [
    ("x86-64-v4", HASWELL, "lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl"),
    ("native,+avx512f", HASWELL, "lacks avx512f"),
    ("native,-speed", RAPIDS, "'-speed' is no feature"),
    ("native,fma", RAPIDS, "'fma' is no feature"),
    ("pentium", RAPIDS, "'pentium' is not known here; .*'x86-64-v3'"),
    ("", RAPIDS, "not known"),
])
def test_what_is_refused(text, features, words):
    with pytest.raises(ValueError, match=words) as error:
        chosen(text, features)
    assert repr(text) in str(error.value)


def test_an_unknown_kind_of_processor_gets_by():
    assert target_of("riscv64-unknown-linux-gnu", {"d"}) == Target(16, fma=True)
    assert target_of("s390x-ibm-linux-gnu", {"vector"}) == Target()


def other_than_native():
    """A processor that this machine can stand for, or a skip."""
    for name in ("x86-64", "generic"):
        try:
            machine_code.check_processor(name)
        except ValueError:
            continue
        return name
    pytest.skip("no level of this kind of processor is known")


@pytest.mark.pinned
def test_the_switch():
    name, x = other_than_native(), torch.linspace(-3, 3, 100, dtype=torch.float16)
    with torch.config.using(executor="native"):
        before, toolchain, want = machine_code.processor(), machine_code.host().toolchain, (x.exp() + 1).tolist()
        with torch.config.using(cpu=name):
            assert torch.config.cpu == name
            assert machine_code.processor() != before and machine_code.host().toolchain != toolchain
            compiled = machine_code.compiled + machine_code.loaded
            assert (x.exp() + 1).tolist() == want
            assert machine_code.compiled + machine_code.loaded > compiled      # other code, under another key
            assert (x[None] @ x[:, None]).isfinite().all()
        assert machine_code.processor() == before
        assert (x.exp() + 1).tolist() == want


@pytest.mark.parametrize("given", ["pentium", "native,+sse9", 64, None])
def test_the_switch_refuses(given):
    before = torch.config.cpu
    with pytest.raises(ValueError, match=r"config\.cpu = "):
        torch.config.cpu = given
    assert torch.config.cpu == before


def test_the_variable_is_looked_at_at_import():
    run = [sys.executable, "-c", "from flambeau.backends.cpu import machine_code; print(machine_code.processor().cpu)"]
    name = other_than_native()
    done = subprocess.run(run, env={**os.environ, "FLAMBEAU_CPU": name}, capture_output=True, text=True)
    assert done.stdout.strip() == name
    done = subprocess.run(run, env={**os.environ, "FLAMBEAU_CPU": "pentium"}, capture_output=True, text=True)
    assert done.returncode and "config.cpu = 'pentium'" in done.stderr

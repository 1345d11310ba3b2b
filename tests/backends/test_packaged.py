"""Kernels that come with the package: found where they suit, absent where anything about them is in doubt."""
import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu import machine_code, program
from flambeau.backends.cpu.library import gemm_kernels
from flambeau.backends.cpu.processor import PROCESSOR_LEVELS, choose
from flambeau.backends.kernel_store import package_kernels, packaged
from tests.patience import PATIENCE
from tests.thorough import takes_seconds

pytestmark = pytest.mark.pinned

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "flambeau"
TEXT = "define i64 @seven_{0}() {{\n  ret i64 {0}\n}}\n"


@pytest.fixture
def goal():
    return machine_code.host().processor


def compiled(text):
    return machine_code.undisturbed(machine_code.host().compile, [text])


@pytest.fixture
def written(tmp_path, goal):
    """A folder with a file of one text, and the text, which no process has compiled before."""
    text = TEXT.format(int.from_bytes(os.urandom(6), "big"))
    packaged.write(str(tmp_path / "kernels-this.bin"), machine_code.host().version, goal, [([text], compiled(text))])
    return tmp_path, text


@pytest.fixture
def using(monkeypatch, goal):
    """Look for kernels of the package in another folder."""
    def use(folder):
        found = packaged.PackagedKernels(machine_code.host().version, goal, str(folder))
        monkeypatch.setattr(machine_code.host().store, "tiers", [found])
        return found
    return use


def called(text):
    """(what the function of a TEXT gives, texts that LLVM compiled for it, texts that were found)."""
    name = text.split("@")[1].split("(")[0]
    before = machine_code.compiled, machine_code.loaded
    address = machine_code.function(name, text)
    made = machine_code.compiled - before[0], machine_code.loaded - before[1]
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)(), *made


@pytest.fixture(autouse=True)
def no_users_folder(monkeypatch):
    """Nothing is found there, and nothing is left."""
    monkeypatch.setattr(machine_code.host().store, "tiers", machine_code.host().store.tiers[:-1])


def number(text):
    return int(text.split("ret i64 ")[1].split()[0])


# --- files ----------------------------------------------------------------------------------------------------------


def test_two_threads_that_look_at_once(monkeypatch):
    """Whoever asks while another looks for the file is not told that there is none."""
    source, seen = packaged.PackagedKernels("version", None), []

    def slowly(self):
        monkeypatch.setattr(packaged.PackagedKernels, "_best", lambda self: ("the file", ""))
        other = threading.Thread(target=lambda: seen.append(self.file))
        other.start()
        other.join()
        return "the file", ""

    monkeypatch.setattr(packaged.PackagedKernels, "_best", slowly)
    assert source.file == "the file" and seen == ["the file"]


def test_what_is_in_the_file_is_not_compiled(written, using):
    folder, text = written
    found = using(folder)
    assert called(text) == (number(text), 0, 1)
    assert found.described() == f"1 for {machine_code.processor().cpu}"
    other = TEXT.format(number(text) + 1)
    assert called(other) == (number(other), 1, 0)


def test_several_texts_of_one_object(tmp_path, using, goal):
    texts = [TEXT.format(int.from_bytes(os.urandom(6), "big")) for _ in range(3)]
    code = machine_code.undisturbed(machine_code.host().compile, texts)
    packaged.write(str(tmp_path / "kernels-this.bin"), machine_code.host().version, goal, [(texts, code)])
    using(tmp_path)
    assert [called(text) for text in texts] == [(number(text), 0, 1) for text in texts]


@pytest.mark.parametrize("spoil, said", [
    (lambda data: data[:20], "damaged"), (lambda data: data[:200], "damaged"), (lambda data: b"", "damaged"),
    (lambda data: b"FLAMKRN0" + data[8:], "damaged"),
    (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "damaged"),
    (lambda data: data[:8] + (1 << 60).to_bytes(8, "little") + data[16:], "damaged"),
], ids=["header", "index", "empty", "another form", "a bit of the index", "length"])
def test_a_damaged_file_counts_as_absent(written, using, spoil, said):
    folder, text = written
    path = folder / "kernels-this.bin"
    path.write_bytes(spoil(path.read_bytes()))
    found = using(folder)
    assert called(text) == (number(text), 1, 0)
    assert found.described() == f"none: kernels-this.bin is {said}"


@pytest.mark.parametrize("spoil", [
    lambda data: data[:-1], lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]], ids=["cut off", "a bit"])
def test_a_damaged_object_counts_as_absent(written, using, spoil):
    folder, text = written
    path = folder / "kernels-this.bin"
    path.write_bytes(spoil(path.read_bytes()))
    using(folder)
    assert called(text) == (number(text), 1, 0)


def test_an_object_that_cannot_be_linked(tmp_path, using, goal):
    """It calls what this process does not have, as one for another C library would."""
    text = TEXT.format(int.from_bytes(os.urandom(6), "big"))
    lacking = compiled("declare i64 @nowhere_to_be_found()\n" + text.replace(
        f"ret i64 {number(text)}", "%a = call i64 @nowhere_to_be_found()\n  ret i64 %a"))
    packaged.write(str(tmp_path / "kernels-this.bin"), machine_code.host().version, goal, [([text], lacking)])
    found = using(tmp_path)
    assert called(text) == (number(text), 1, 0)
    assert "cannot be linked" in found.described()


# --- by what a text is written from ---------------------------------------------------------------------------------


WORDS = "seven, as somebody says it"


@pytest.fixture
def with_origin(tmp_path, goal):
    """A folder with a file of one text, by the words that it was written from, and the text."""
    text = TEXT.format(int.from_bytes(os.urandom(6), "big"))
    name = text.split("@")[1].split("(")[0]
    packaged.write(str(tmp_path / "kernels-this.bin"), machine_code.host().version, goal, [([text], compiled(text))],
                   [(machine_code.origin_of(WORDS), name, text)])
    return tmp_path, text


def test_a_function_is_found_before_its_text_is_written(with_origin, using):
    folder, text = with_origin
    using(folder)
    before = machine_code.compiled, machine_code.loaded
    found = machine_code.packaged_functions([WORDS, "eight"])
    assert list(found) == [WORDS] and (machine_code.compiled, machine_code.loaded) == (before[0], before[1] + 1)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(found[WORDS])() == number(text)
    assert called(text) == (number(text), 0, 1)                  # and by its text as ever
    assert machine_code.packaged_functions([]) == {}


def test_for_another_target_it_is_another_text(with_origin, using, monkeypatch):
    using(with_origin[0])
    other = machine_code.target()._replace(fma=not machine_code.target().fma)
    monkeypatch.setattr(machine_code, "target", lambda: other)
    assert machine_code.packaged_functions([WORDS]) == {}


@pytest.mark.parametrize("writers", ["of tomorrow", None])
def test_once_texts_are_written_otherwise_only_texts_are_found(with_origin, using, monkeypatch, writers):
    folder, text = with_origin
    monkeypatch.setattr(packaged, "writers", lambda: writers)
    found = using(folder)
    assert machine_code.packaged_functions([WORDS]) == {} and called(text) == (number(text), 0, 1)
    cpu = machine_code.processor().cpu
    assert found.described().startswith(f"1 for {cpu}, found later than they could be: modules that")


def test_every_module_that_writes_texts_counts(tmp_path, monkeypatch):
    """An edit of any of them, a new one, and one that is gone; those who package ask the same."""
    assert {Path(sys.modules[f"flambeau.{name}"].__file__).parent for name in (
        "loops.llvm", "backends.cpu.llvm_writer", "backends.cpu.library.gemm_kernels", "backends.cpu.random.libm")} == {
            PACKAGE / folder for folder in packaged.WRITER_FOLDERS}
    for folder in ("loops", "backends/cpu"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyx", "*.pxd", "*.pyc"))
    before = packaged.writers()
    monkeypatch.setattr(packaged, "PACKAGE", str(tmp_path))
    found = [packaged.writers.__wrapped__()]
    assert found == [before]
    (tmp_path / "loops/emit.py").write_text((tmp_path / "loops/emit.py").read_text() + "#\n")
    found.append(packaged.writers.__wrapped__())
    (tmp_path / "loops/another.py").touch()
    found.append(packaged.writers.__wrapped__())
    (tmp_path / "backends/cpu/library/blocking.py").unlink()
    found.append(packaged.writers.__wrapped__())
    assert len(set(found)) == 4
    shutil.rmtree(tmp_path / "loops")                            # a frozen program has no sources
    assert packaged.writers.__wrapped__() is None


def test_an_object_of_some_words_that_cannot_be_linked(tmp_path, using, goal):
    text = TEXT.format(int.from_bytes(os.urandom(6), "big"))
    name = text.split("@")[1].split("(")[0]
    lacking = compiled("declare i64 @nowhere_to_be_found()\n" + text.replace(
        f"ret i64 {number(text)}", "%a = call i64 @nowhere_to_be_found()\n  ret i64 %a"))
    packaged.write(str(tmp_path / "kernels-this.bin"), machine_code.host().version, goal, [([text], lacking)],
                   [(machine_code.origin_of(WORDS), name, text)])
    found = using(tmp_path)
    assert machine_code.packaged_functions([WORDS]) == {} and "cannot be linked" in found.described()


def test_words_of_the_library_stand_for_one_text_each(library_file):
    """The one that is written now: whoever asks for it, of whichever kind of kernels."""
    if machine_code.host().processor != package_kernels.processor_called("native"):
        pytest.skip("config.cpu has chosen another processor than this one")
    file = packaged.opened(str(library_file("native") / f"kernels-{machine_code.host().processor.cpu}.bin"))
    host = machine_code.host()
    known = packaged.PackagedKernels(host.version, host.processor, str(library_file("native")))
    count = 0
    for kind in (kind for kinds in package_kernels.PACKAGED_CLASSES for kind in kinds):
        machine = gemm_kernels.compiled_kernels("float32", kind)
        hows = {*kind.every(machine.kernels, machine), *(machine.blocks() if hasattr(kind, "micro") else ())}
        for how in hows:
            name = machine._name(how)
            text = machine._text(name, how)
            found = known.function(machine_code.origin_of(machine.words(name)))
            assert found == [name, file.texts[packaged.digest(text)]]
            count += 1
    assert count > 60


def test_a_file_is_there_whole_or_not_at_all(written, goal):
    folder, text = written
    before = (folder / "kernels-this.bin").read_bytes()
    with pytest.raises(TypeError):
        packaged.write(str(folder / "kernels-this.bin"), machine_code.host().version, goal, [([text], 7)])
    with pytest.raises(OSError):
        packaged.write(str(folder / "no folder" / "kernels-this.bin"), machine_code.host().version, goal,
                       [([text], b"code")])
    assert os.listdir(folder) == ["kernels-this.bin"] and (folder / "kernels-this.bin").read_bytes() == before


def test_no_folder_and_no_file(tmp_path, using):
    assert using(tmp_path / "nothing").described().startswith("none: they were not made")
    assert using(tmp_path).file is None


# --- who may have written it ----------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("spoil, said", [
    (lambda path: path.chmod(0o666), "writable by others"),
    (lambda path: path.parent.chmod(0o777), "writable by others"),
    (lambda path: (path.rename(path.parent / "else"), path.symlink_to(path.parent / "else")), "symbolic link"),
    (lambda path: (path.unlink(), os.mkfifo(path)), "not a file"),
], ids=["file", "folder", "link", "fifo"])
def test_what_others_can_write_is_left_alone(written, using, spoil, said):
    folder, text = written
    spoil(folder / "kernels-this.bin")
    found = using(folder)
    assert called(text) == (number(text), 1, 0)
    assert said in found.described()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_is_trusted_as_the_modules_beside_it():
    def status(mode=0o644, owner=0, group=0):
        return os.stat_result((0o100000 | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))

    def why(found, folder, module):
        return packaged._distrusted(found, folder, module)

    own = os.geteuid()
    assert not why(status(), status(0o755), status())
    assert not why(status(owner=own), status(0o755, own), status(owner=own))
    assert not why(status(0o664, 7, 7), status(0o775, 7, 7), status(0o664, 7, 7))     # an installation of a group's
    assert "another user" in why(status(owner=7), status(0o755), status(owner=own))
    assert "another user" in why(status(owner=own), status(0o755, 7), status(owner=own))
    assert "others" in why(status(0o664, own, 8), status(0o755, own), status(0o664, own, 7))
    assert "others" in why(status(0o664, own), status(0o755, own), status(0o644, own))
    assert "others" in why(status(0o666, own), status(0o755, own), status(0o664, own))


# --- which processor ------------------------------------------------------------------------------------------------

X86 = dict.fromkeys([*PROCESSOR_LEVELS["x86_64"]["x86-64-v4"].split(), "avx512fp16"], True)


def x86(text, features=X86):
    return choose(text, "x86_64-unknown-linux-gnu", "sapphirerapids", features)


def test_levels_of_x86_suit_the_processors_that_have_them(tmp_path):
    native = x86("native")
    for name in ("x86-64-v3", "x86-64-v4"):
        packaged.write(str(tmp_path / f"kernels-{name}.bin"), "1", x86(name), [(["text"], name.encode())])

    def suiting(goal, version="1"):
        found = packaged.PackagedKernels(version, goal, str(tmp_path))
        return found.file and found.file.cpu
    assert x86("x86-64-v4").target == native.target              # so the texts are the same
    assert suiting(native) == suiting(x86("x86-64-v4")) == suiting(x86("native,-avx512fp16")) == "x86-64-v4"
    haswell = choose("native", "x86_64-unknown-linux-gnu", "haswell",
                     {feature: not feature.startswith("avx512") for feature in X86})
    assert suiting(haswell) == suiting(x86("x86-64-v3")) == "x86-64-v3"
    assert suiting(x86("native,-fma")) is suiting(x86("x86-64-v2")) is None
    assert suiting(native, "2") is None
    packaged.write(str(tmp_path / "kernels-sapphirerapids.bin"), "1", native, [(["text"], b"its own")])
    assert suiting(native) == "sapphirerapids" and suiting(x86("x86-64-v4")) == "x86-64-v4"


def test_what_was_made_otherwise_is_absent_and_says_so(written, monkeypatch, goal):
    folder, text = written

    def why(version=None, goal=goal):
        return packaged.PackagedKernels(version or machine_code.host().version, goal, str(folder)).described()
    assert "another compiler" in why("another") and "another" in why("another")
    assert "another system" in why(goal=goal._replace(triple="riscv64-unknown-linux-gnu"))
    assert f"made for {goal.cpu}" in why(goal=goal._replace(on=frozenset(), cpu="less"))
    monkeypatch.setattr(sys, "platform", "elsewhere")
    assert "another system" in why()


def test_config_cpu_chooses(library_file, monkeypatch):
    monkeypatch.setattr(packaged, "PACKAGED_FOLDER", str(library_file("native")))
    least = "generic" if machine_code.processor().triple.startswith(("aarch64", "arm64")) else "x86-64"
    with torch.config.using(cpu="native"):
        assert machine_code.host().store.tiers[0].file is not None
        with torch.config.using(cpu=least):
            assert machine_code.host().store.tiers[0].file is None     # which is for a processor that has more


# --- what the library asks for --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library_file(tmp_path_factory):
    """A folder with the library's texts for a processor, made as the package makes it."""
    made = {}

    def give(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("kernels")
            run(f"""
                from flambeau.backends.kernel_store import package_kernels
                package_kernels.make({str(made[name])!r}, {name!r})
                """)
        return made[name]
    return give


def run(code, *arguments, **variables):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True,
                          timeout=PATIENCE, env={**os.environ, "PYTHONPATH": str(ROOT), "FLAMBEAU_CACHE_DIR": "",
                                                 "FLAMBEAU_EXECUTOR": "auto", "FLAMBEAU_CPU": "", **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


START = """
import sys, numpy as np, flambeau as torch
from flambeau.backends.cpu import machine_code
from flambeau.backends.kernel_store import packaged
packaged.PACKAGED_FOLDER = sys.argv[1]
asked, compile = [], machine_code.HostLLVM.compile
def compiled(self, texts):
    asked.extend(texts)
    return compile(self, texts)
machine_code.HostLLVM.compile = compiled
nn, F = torch.nn, torch.nn.functional
torch.manual_seed(0)
"""
# a fused kernel is called k and a number in hexadecimal; everything else is the library's
END = """
import re
names = [name for text in asked for name in re.findall(r"^define (?!internal|private)[^@]*@(\\w+)\\(", text, re.M)]
print("written:", *written)
print("library:", *sorted({name for name in names if not re.match("k[0-9a-f]{16}", name)}))
"""
NETS = {
    "unet": """
        down, up = nn.Conv2d(1, 24, 3, padding=1), nn.Conv2d(24, 3, 3, padding=1)
        parameters, x = [*down.parameters(), *up.parameters()], torch.randn(4, 1, 32, 32)
        def out(): return F.interpolate(up(F.max_pool2d(F.silu(down(x)), 2)), scale_factor=2)
    """,
    "residual": """
        one, two = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Conv2d(64, 128, 3, 2, 1, bias=False)
        norm, head = nn.BatchNorm2d(128), nn.Linear(128, 10)
        parameters = [p for m in (one, two, norm, head) for p in m.parameters()]
        x = torch.randn(8, 3, 32, 32)
        def out(): return head(F.relu(norm(two(F.relu(one(x))))).mean((2, 3)))
    """,
    "perceptron": """
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 3))
        parameters, x = list(net.parameters()), torch.randn(64, 784)
        def out(): return net(x)
    """,
    "recurrent": """
        words, lstm = nn.Embedding(1000, 64), nn.LSTM(64, 64)
        parameters, x = [*words.parameters(), *lstm.parameters()], torch.arange(96).reshape(12, 8)
        def out(): return lstm(words(x))[0]
    """,
}
STEPS = """
from flambeau.backends.cpu.library import gemm_kernels
written, write = [], gemm_kernels.CompiledKernels._text
def noted(self, name, how):
    written.append(name)
    return write(self, name, how)
gemm_kernels.CompiledKernels._text = noted
optimizer = torch.optim.SGD(parameters, 0.01, momentum=0.9)
for step in range(3):
    optimizer.zero_grad()
    loss = out().square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
"""


@pytest.mark.parametrize("net", NETS)
def test_a_cold_training_asks_llvm_for_nothing_of_the_librarys(library_file, net, tmp_path):
    code = START + textwrap.dedent(NETS[net]) + STEPS + END
    *losses, written, asked = run(code, str(library_file("native"))).splitlines()
    assert asked == "library:" and written == "written:" and len(losses) == 3          # nor is a text of its written
    if net == "residual":                                        # and without the file it does, with the same bits
        *same, written, without = run(code, str(tmp_path)).splitlines()
        assert same == losses and written != "written:" and without != "library:"


@takes_seconds
def test_code_for_a_level_gives_the_bits_of_code_for_this_processor(library_file, tmp_path):
    """On a machine that has more than the level, as with a wheel's."""
    here = machine_code.host().processor
    level = next((name for name in package_kernels.levels()
                  if package_kernels.processor_called(name).on <= here.on
                  and package_kernels.processor_called(name).target == here.target), None)
    if level is None:
        pytest.skip("this processor writes its kernels for another Target than those of wheels")
    for net in NETS.values():
        code = START + textwrap.dedent(net) + STEPS + END
        *losses, written, asked = run(code, str(library_file(level))).splitlines()
        assert asked == "library:" and written == "written:"
        assert losses == run(code, str(tmp_path)).splitlines()[:-2]


def test_the_library_lists_all_that_it_asks_for():
    """Whatever is planned, for any shapes: `every` has its text."""
    listed = {name for kinds in package_kernels.PACKAGED_CLASSES for kind in kinds
              for name in gemm_kernels.compiled_kernels("float32", kind).every()}
    drawn, asked = np.random.default_rng(3), set()

    def whole(low, high): return int(drawn.integers(low, high))
    def dense(*shape): return shape, tuple(np.cumprod((1, *shape[:0:-1]))[::-1].tolist())
    def turned(shape, strides): return shape, (*strides[:-2], 1, shape[-2])

    for _ in range(150):
        M, N, K = whole(1, 12) if whole(0, 2) else whole(12, 100), whole(1, 100), whole(1, 700)
        a, b = [turned(*one) if whole(0, 2) else one for one in (dense(M, K), dense(K, N))]
        assert program.library.ask("gemm", torch.float32, (a, b), (dense(M, N),), ()) is not None
    for _ in range(150):
        C, O, H, W, k, stride = whole(1, 100), whole(1, 100), whole(3, 40), whole(3, 40), whole(1, 4), whole(1, 3)
        out = [(size + 2 - k) // stride + 1 for size in (H, W)]
        x, weight = dense(whole(1, 5), C, H, W), dense(O, C, k, k)
        y = dense(x[0][0], O, *out)
        how = (stride,) * 2, (1, 1), (1, 1), 1
        assert program.library.ask("convolve", torch.float32, (x, weight), (y,), (*how, False)) is not None
        program.library.ask("convolve", torch.float32, (y, weight), (x,), (*how, True))
        program.library.ask("convolve_weight", torch.float32, (x, y), (weight,), how)
    for _ in range(50):
        x, k = dense(whole(1, 5), whole(1, 20) if whole(0, 2) else whole(20, 6000)), whole(1, 100)
        for dtype in (torch.float32, torch.int64):
            assert program.library.ask("sort", dtype, (x,), (x, x), (bool(whole(0, 2)),)) is not None
            best = dense(x[0][0], min(k, x[0][1]))
            program.library.ask("topk", dtype, (x,), (best, best), (best[0][1], bool(whole(0, 2))))
            program.library.ask("pick", dtype, (x,), (dense(x[0][0]),) * 2, ("median", 0))
    kinds = [kind for some in package_kernels.PACKAGED_CLASSES[:4] for kind in some]     # those asked above
    for (dtype, kind, _), machine in list(gemm_kernels._hosts.items()):
        if dtype == "float32" and kind in kinds:
            asked |= {machine._name(how) for how in machine.made
                      if kind.word != "order" or how[1] in ("float32", "int64")}
    assert asked <= listed and {"dots_8_3_product_f32", "micro_8x1_f32", "plane_1_taps_f32",
                                "digits_int64_8_order_f32"} <= asked
    assert len(asked) > 30


# --- making them ----------------------------------------------------------------------------------------------------


def test_a_processor_that_is_not_known_is_refused_in_words(tmp_path):
    done = subprocess.run([sys.executable, "-c", """
import sys
from flambeau.cli import package_kernels
package_kernels.fused_launches = lambda: []
sys.exit(package_kernels.main(sys.argv[1:]))""", str(tmp_path), "abacus"], capture_output=True, text=True, cwd=ROOT,
                          timeout=PATIENCE)
    assert done.returncode == 1 and "'abacus' is not known here" in done.stderr and not os.listdir(tmp_path)


def test_without_llvmlite_none_are_made(tmp_path):
    done = subprocess.run([sys.executable, "-c", """
import sys
sys.modules["llvmlite"] = None
from flambeau.cli import package_kernels
sys.exit(package_kernels.main(sys.argv[1:]))""", str(tmp_path), "native"], capture_output=True, text=True, cwd=ROOT,
                          timeout=PATIENCE)
    assert done.returncode == 1 and "llvmlite" in done.stderr and not os.listdir(tmp_path)


def test_neither_import_nor_the_reference_looks_for_them():
    said = run("""
        import sys, flambeau as torch
        assert "flambeau.backends.kernel_store.packaged" not in sys.modules
        x = torch.randn(50, 50, requires_grad=True)
        (x @ x).relu().sum().backward()
        assert x.grad.shape == (50, 50) and "flambeau.backends.kernel_store.packaged" not in sys.modules
        print("as it should")
        """, FLAMBEAU_EXECUTOR="reference")
    assert said == "as it should\n"


@takes_seconds
def test_words_and_common_nets_are_launches_that_can_be_written_for_any_processor(tmp_path):
    """What is packaged beside the library: a first look at a function asks LLVM for nothing, and a net that is like a
    common one, but of another size, for little."""
    run("""
        import sys
        from flambeau.cli import common_nets, package_kernels
        common_nets.steps = lambda: list(common_nets.perceptrons())[:2]
        sys.exit(package_kernels.main(sys.argv[1:]))
        """, str(tmp_path), "native")
    said = run(START + """
x = torch.rand(300, 300)
for function in (torch.exp, torch.log, torch.tanh, torch.sigmoid, torch.erf, torch.rsqrt, torch.sin, torch.log1p):
    function(x).sum().item()
assert not asked, asked
net = nn.Sequential(nn.Linear(300, 700), nn.ReLU(), nn.Linear(700, 300), nn.ReLU(), nn.Linear(300, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
y = torch.arange(300) % 10
torch.cpu.synchronize()                           # labels are there, or to check them would cut the first step in two
for step in range(4):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item() > 0)
print("kernels of its own:", len(asked))
""", str(tmp_path))
    assert said.splitlines() == ["True"] * 4 + ["kernels of its own: 0"]

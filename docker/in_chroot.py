#!/usr/bin/env python3
"""Run the steps of docker/Dockerfile where there is no Docker: each stage is a root file system made by debootstrap,
and RUN a chroot into it. The file itself is read, so an image and this cannot drift apart.

    sudo docker/in_chroot.py cpu inference --to /var/tmp/images
    sudo docker/in_chroot.py inference --to /var/tmp/images --build-arg WARMUP=my_model.py --run

Needs root, debootstrap and Linux's unshare. `--run` then runs an image's ENTRYPOINT and CMD as its user, with its
environment, as `docker run` would; `--bind PATH` shows a folder of this machine to every step, to be read, and `--env
NAME` passes a variable on (a local index of packages, a proxy). Sizes are printed at the end. What is not understood
is refused.
"""
import argparse
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIRROR = "http://deb.debian.org/debian"
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")        # of /dev, what Docker shows too
PLAIN_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Stage:
    """A stage of the Dockerfile: its name, what it starts from, and its instructions [(word, rest)]."""

    def __init__(self, name, base):
        self.name, self.base, self.steps = name, base, []


def stages(text):
    """{name: Stage} of a Dockerfile, in order."""
    found: dict = {}
    for word, rest in instructions(text):
        if word == "FROM":
            base, *more = rest.split()
            if more and (len(more) != 2 or more[0].upper() != "AS"):
                raise SystemExit(f"FROM {rest}: write FROM image AS name")
            name = more[1] if more else str(len(found))
            stage = found[name] = Stage(name, base)
        elif not found:
            raise SystemExit(f"{word} {rest}: before the first FROM nothing is understood")
        else:
            stage.steps.append((word, rest))
    return found


def instructions(text):
    """(word, rest) of each instruction: comments left out, continued lines joined."""
    joined = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip() and joined == "":
            continue
        joined += line.rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        word, _, rest = joined.strip().partition(" ")
        joined = ""
        yield word.upper(), rest.strip()


def substituted(text, values):
    """`text` with $NAME, ${NAME}, ${NAME:-word} and ${NAME:+word} as the Dockerfile's own instructions know them."""
    def one(found):
        name, how, word = found[1] or found[2], found[3], found[4]
        value = values.get(name, "")
        return (word if value else "") if how == "+" else value or word or ""
    return VARIABLE.sub(one, text)


class Builder:
    """Makes stages, each once, in a folder."""

    def __init__(self, text, folder, given, binds=(), passed=()):
        self.stages, self.folder, self.given = stages(text), Path(folder), given
        self.binds, self.passed, self.made = binds, passed, {}

    def make(self, name):
        """The Image of a stage."""
        if name in self.made:
            return self.made[name]
        stage = self.stages[name]
        root = self.folder / name
        if root.exists():
            shutil.rmtree(root)
        if stage.base in self.stages:
            below = self.make(stage.base)
            copied = below.copy(root)
        else:
            copied = Image(root, dict(PLAIN_ENVIRONMENT))
            self.bootstrap(stage.base, root)
        print(f"--- {name}", flush=True)
        arguments: dict = {}
        for word, rest in stage.steps:
            self.step(copied, word, rest, arguments)
        self.made[name] = copied
        return copied

    def bootstrap(self, image, root):
        """A root file system of Debian, as `debian:bookworm-…-slim` is one; made once, then copied."""
        found = re.fullmatch(r"debian:([a-z]+)(?:-\d+)?-slim(?:@sha256:\w+)?", image)
        if not found:
            raise SystemExit(f"FROM {image}: only debian:NAME-slim can be made with debootstrap")
        kept = self.folder / f"debian-{found[1]}"
        if not (kept / "etc/debian_version").exists():
            subprocess.run(["debootstrap", "--variant=minbase", found[1], kept, MIRROR], check=True)
            for path in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists", "var/cache/apt"):
                shutil.rmtree(kept / path, ignore_errors=True)        # as the slim images have it
                (kept / path).mkdir(parents=True, exist_ok=True)
        copy_tree(kept, root)

    def step(self, image, word, rest, arguments):
        """Do one instruction."""
        values = {**arguments, **image.environment}
        if word == "ARG":
            name, _, default = rest.partition("=")
            arguments[name] = self.given.get(name, substituted(default, values))
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                image.environment[name] = substituted(value, values)
        elif word == "WORKDIR":
            image.folder = substituted(rest, values)
            image.inside(image.folder).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            image.user = rest
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(image, word.lower(), json.loads(rest))
        elif word == "COPY":
            self.copy(image, rest, values)
        elif word == "RUN":
            print(f"RUN {rest[:110]}", flush=True)
            done = image.run(["/bin/sh", "-c", rest], self.binds, self.passed, arguments)
            if done:
                raise SystemExit(f"RUN {rest}: ended with {done}")
        else:
            raise SystemExit(f"{word} {rest}: this instruction is not understood here")

    def copy(self, image, rest, values):
        """COPY [--from=stage] [--chmod=755] source… place."""
        words, options = shlex.split(substituted(rest, values)), {}
        while words[0].startswith("--"):
            name, _, value = words.pop(0)[2:].partition("=")
            options[name] = value
        if set(options) - {"from", "chmod"}:
            raise SystemExit(f"COPY {rest}: of its options, --from and --chmod are understood")
        *sources, place = words
        top = self.make(options["from"]).root if "from" in options else ROOT
        target = image.inside(place)
        for source in sources:
            found = sorted(glob.glob(str(top / source.lstrip("/"))))
            if not found:
                raise SystemExit(f"COPY {rest}: there is no {source}")
            for path in map(Path, found):
                if path.is_dir():
                    copy_tree(path, target)
                    continue
                end = target / path.name if place.endswith("/") or len(sources) > 1 else target
                end.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, end, follow_symlinks=False)
                os.chown(end, 0, 0)
                if "chmod" in options:
                    end.chmod(int(options["chmod"], 8))


class Image:
    """A stage that was made: its `root`, and what a process in it starts with."""

    def __init__(self, root, environment):
        self.root, self.environment = root, environment
        self.folder, self.user, self.entrypoint, self.cmd = "/", "", [], []

    def copy(self, root):
        """The same at another place."""
        copy_tree(self.root, root)
        made = Image(root, dict(self.environment))
        made.folder, made.user, made.entrypoint, made.cmd = self.folder, self.user, self.entrypoint, self.cmd
        return made

    def inside(self, path):
        """Where a path of the image is."""
        return self.root / path.lstrip("/")

    def run(self, command, binds=(), passed=(), arguments=None):
        """Run a command in it, in a mount namespace of its own; the exit code."""
        environment = {**{name: os.environ[name] for name in passed if name in os.environ}, **(arguments or {}),
                       **self.environment}
        if self.user:
            environment["HOME"] = self.home()
        mounts = ["mount -t proc proc \"$root/proc\"",
                  "mount -t tmpfs -o mode=755 tmpfs \"$root/dev\"",
                  *(f"touch \"$root/dev/{name}\"; mount --bind /dev/{name} \"$root/dev/{name}\"" for name in DEVICES),
                  "mkdir -m 1777 \"$root/dev/shm\"; mount -t tmpfs -o mode=1777,size=1g tmpfs \"$root/dev/shm\"",
                  "ln -s /proc/self/fd \"$root/dev/fd\"", "touch \"$root/etc/resolv.conf\"",
                  read_only("\"$(readlink -f /etc/resolv.conf)\"", "\"$root/etc/resolv.conf\"")]
        for path in binds:
            at = self.inside(path)
            if os.path.isdir(path):
                at.mkdir(parents=True, exist_ok=True)
            else:
                at.parent.mkdir(parents=True, exist_ok=True)
                at.touch()
            mounts.append(read_only(shlex.quote(path), shlex.quote(str(at))))
        chroot = ["chroot", *([f"--userspec={self.user}"] if self.user else []), str(self.root), "/usr/bin/env", "-i",
                  "-C", self.folder, *(f"{name}={value}" for name, value in environment.items()), *command]
        script = "\n".join(["set -e", f"root={shlex.quote(str(self.root))}", *mounts, shlex.join(["exec", *chroot])])
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script]).returncode
        for path in binds:                            # what the binds stood on is not part of the image
            remove_empty(self.inside(path), self.root)
        return done

    def home(self):
        """The home of its user, as /etc/passwd has it."""
        number = self.user.partition(":")[0]
        for line in self.inside("/etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if number in (fields[0], fields[2]):
                return fields[5]
        return "/"

    def size(self):
        """Bytes of its files, hard links once."""
        seen, total = set(), 0
        for folder, _, files in os.walk(self.root):
            for name in files:
                found = os.lstat(os.path.join(folder, name))
                if (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    total += found.st_size
        return total


def read_only(source, place):
    """A shell command that shows `source` at `place`. A step must not be able to write to this machine's own files: the
    scripts of packages rewrite folders such as /etc/ssl/certs."""
    return f"mount --bind {source} {place}; mount -o remount,bind,ro {place}"


def remove_empty(path, top):
    """Take away a mount point that was made, and the folders above it that hold nothing else."""
    try:
        path.unlink() if path.is_file() and not path.stat().st_size else path.rmdir()
        while path.parent != top:
            path = path.parent
            path.rmdir()
    except OSError:                                   # it was there before, or holds something
        pass


def copy_tree(source, target):
    """Copy the contents of a folder with owners, modes and links."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", f"{source}/.", str(target)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", help="stages of docker/Dockerfile")
    parser.add_argument("--to", required=True, help="the folder in which root file systems are made")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--bind", action="append", default=[], metavar="PATH")
    parser.add_argument("--env", action="append", default=[], metavar="NAME")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="run the last of them, with this command or its own")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("docker/in_chroot.py: needs root, for chroot and mount")
    for tool in ("debootstrap", "unshare", "chroot"):
        if shutil.which(tool) is None:
            raise SystemExit(f"docker/in_chroot.py: needs {tool}")
    for path in options.bind:
        if not os.path.exists(path):
            raise SystemExit(f"docker/in_chroot.py: --bind {path}: there is no such file or folder")
    builder = Builder((ROOT / "docker" / "Dockerfile").read_text(), options.to,
                      dict(pair.split("=", 1) for pair in options.build_arg), options.bind, options.env)
    images = [builder.make(target) for target in options.targets]
    for target, image in zip(options.targets, images):
        print(f"{target}: {image.size() / 1e6:.0f} MB in all, {_size(image, '/opt') / 1e6:.0f} MB of them in /opt")
    if options.run is not None:
        last = images[-1]
        sys.exit(last.run([*last.entrypoint, *(options.run or last.cmd)], options.bind, options.env))


def _size(image, path):
    return Image(image.inside(path), {}).size()


if __name__ == "__main__":
    main()

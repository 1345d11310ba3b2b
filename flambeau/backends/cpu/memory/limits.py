"""How much memory this process may have, holds, and can still get: of the machine, or of its container.

Read from the files of Linux; where there are none, nothing is known and no limit is assumed.
"""
import functools
import os

NO_LIMIT_BYTES = 1 << 60
CGROUP_FOLDER = "/sys/fs/cgroup"


def limit():
    """The most bytes this process could ever hold, by the machine (with its swap) and by its control groups."""
    total = _meminfo("MemTotal") + _meminfo("SwapTotal") or NO_LIMIT_BYTES
    return min([total, *(_number(folder, ceiling) for folder, ceiling, _, _ in _groups())])


def resident_bytes():
    """The bytes of memory that this process holds now."""
    words = text_of("/proc/self/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def available():
    """The bytes that may still be allocated before the machine or a control group runs out."""
    room = [_meminfo("MemAvailable") or NO_LIMIT_BYTES]
    for folder, ceiling, usage, cached in _groups():
        most = _number(folder, ceiling)
        if most < NO_LIMIT_BYTES:
            files = _field(text_of(f"{folder}/memory.stat"), cached)       # given up by the kernel before it refuses
            room.append(most - _number(folder, usage) + files)
    return max(min(room), 0)


@functools.cache
def _groups():
    """The control groups that bound us: (folder, file of the limit, file of the usage, field of the cached files)."""
    found = []
    for line in text_of("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            tops = [f"{CGROUP_FOLDER}/memory"]
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif number == "0":
            tops, files = [CGROUP_FOLDER, f"{CGROUP_FOLDER}/unified"], ("memory.max", "memory.current", "inactive_file")
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for top in tops:                    # inside a container the group may stand at the top, without its path
            for depth in range(len(parts), -1, -1):
                folder = "/".join([top, *parts[:depth]])
                if os.path.exists(f"{folder}/{files[0]}"):
                    found.append((folder, *files))
    return found


def text_of(path):
    """What a file of the system's says; nothing where it is not there."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:                         # not this system, or not ours to read
        return ""


def _number(folder, name):
    """What a file of a control group says; `max`, and no file, mean no limit."""
    text = text_of(f"{folder}/{name}").strip()
    return min(int(text), NO_LIMIT_BYTES) if text.isdigit() else NO_LIMIT_BYTES


def _field(text, name):
    """The number behind `name` in lines of names and numbers."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0].rstrip(":") == name:
            return int(words[1])
    return 0


def _meminfo(name):
    """Bytes behind `name` in /proc/meminfo; 0 where it is not said."""
    return _field(text_of("/proc/meminfo"), name) * 1024

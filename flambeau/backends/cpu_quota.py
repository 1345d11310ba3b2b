"""How many processors this process may use, and how texts are dealt out to be compiled on all of them."""
import math
import os

from .cpu.memory.limits import text_of

NO_QUOTA = 1 << 20            # processors, where no control group limits them


def processors():
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota(root="/"):
    """How many processors' time the control groups of this process grant, rounded up; very many without a limit."""
    granted = time_granted(root)
    return NO_QUOTA if granted is None else math.ceil(granted)


def time_granted(root="/"):
    """How many processors' time the control groups of this process grant, such as 1.5; None without a limit."""
    granted = []
    for line in text_of(f"{root}proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            tops = "sys/fs/cgroup/cpu", f"sys/fs/cgroup/{controllers}"
        elif number == "0":
            tops = "sys/fs/cgroup", "sys/fs/cgroup/unified"
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for top in tops:
            # every group up to the top counts, and inside a container the group may stand there without its path
            for folder in ("/".join([root + top, *parts[:depth]]) for depth in range(len(parts) + 1)):
                words = (text_of(f"{folder}/cpu.max") or
                         text_of(f"{folder}/cpu.cfs_quota_us") + " " + text_of(f"{folder}/cpu.cfs_period_us")).split()
                if len(words) == 2 and words[0].isdigit() and int(words[0]):        # max, and -1, mean no limit
                    granted.append(int(words[0]) / int(words[1]))
    return min(granted, default=None)


def dealt_out(sources, most):
    """{name: source} as at most `most` such, of about the same length; the longest are dealt out first."""
    batches: list = [{} for _ in range(min(most, len(sources)))]
    lengths = [0] * len(batches)
    for name in sorted(sources, key=lambda name: (-len(sources[name]), name)):
        at = lengths.index(min(lengths))
        batches[at][name] = sources[name]
        lengths[at] += len(sources[name])
    return batches

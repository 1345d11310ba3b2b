"""What a page shows, as a dictionary that JSON can hold: made of what a RunReport has collected.

Numbers that are not finite become words, since JSON has none; long series are thinned, so that a page of a run of a
million steps is as large as one of a thousand.
"""
import linecache
import math
import os
import sys
import time

from ..backends.devices import accelerator
from ..base import settings
from ..base.spec import as_device
from ..cli import facts
from ..cli.doctor import screen, slow_surroundings
from ..profiler import model
from ..watch import findings

MOST_POINTS = 1500                 # of a curve
MOST_TIMES = 300                   # of the timeline of memory
SHOWN_LINES = 8                    # of the program in it, the largest at the peak
MOST_ROWS = 60                     # of a table
MOST_SOURCE_LINES = 4000           # of a file that is shown
OTHERS, BEFORE = "other lines", "there before"


def gathered(run):
    """All of it."""
    profile = run.profile
    return {
        "title": run.title or main_file() or "a run", "when": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.when)),
        "seconds": (run.ended - run.began) / 1e9, "steps": len(run.ends),
        "sampled": {"first": run.sampled[0], "count": run.sampled[1], "seconds": profile.wall / 1e9 if profile else 0},
        "error": run.error and {"kind": type(run.error).__name__, "text": str(run.error)},
        "placement": placement(run), "curves": curves(run), "parts": parts(profile),
        "lines": rows(profile, "line"), "sources": sources(profile, run.memory), "kernels": rows(profile, "kernel"),
        "modules": rows(profile, "module"), "memory": memory(run.memory),
        "findings": [finding(one) for one in findings() if one not in run.found_before],
        "graph": run.picture.svg() if run.picture is not None else None,
    }


def main_file():
    """What the program is called."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.basename(path) if path else None


# --- where it ran -----------------------------------------------------------------------------------------------------


def placement(run):
    """Where the work was done: the share of each device in the time of all steps, and bytes of parameters there."""
    running: dict = {}
    for step in run.profile.steps if run.profile else ():
        running[step.device] = running.get(step.device, 0) + step.nanoseconds
    peaks = {one.device: one for one in used(run.memory)}
    total = sum(running.values()) or 1
    devices = [{"device": name, "running": running.get(name, 0) / 1e9, "share": running.get(name, 0) / total,
                "parameters": peaks[name].roles.get("parameters", 0) if name in peaks else 0,
                "peak": peaks[name].nbytes if name in peaks else 0, "name": device_name(name)}
               for name in sorted({*running, *peaks}, key=lambda name: -running.get(name, 0))]
    device_type = accelerator()
    idle = device_type is not None and not any(one["device"].partition(":")[0] == device_type and one["running"]
                                               for one in devices)
    known = facts.gather()
    problems = [repr(one) for one in slow_surroundings(known)]
    if idle:
        problems.insert(0, f"A {device_type.upper()} device is there, and everything ran on the CPU: move the model "
                           f"and the data to it, model.to({device_type!r}).")
    return {"devices": devices, "idle": idle, "problems": problems,
            "expected": settings.expect_device, "facts": [list(line) for line in screen(known)]}


def device_name(device):
    """What a person calls a device."""
    return facts.processor() if device == "cpu" else as_device(device).backend.name


# --- curves -----------------------------------------------------------------------------------------------------------


def curves(run):
    """Series over time: [{"name", "unit", "points": [[seconds, step, value]]}]."""
    def seconds(when):
        return (when - run.began) / 1e9
    found = []
    if run.losses:
        found.append({"name": "loss", "points": thinned([[seconds(when), step, number(loss)]
                                                         for step, when, loss in run.losses])})
    names = list(dict.fromkeys(name for _, scalars in run.logged for name in scalars))
    found += [{"name": name, "points": thinned([[seconds(when), None, number(scalars[name])]
                                                for when, scalars in run.logged if name in scalars])} for name in names]
    if len(run.ends) > 1:
        found += throughput(run, seconds)
    return found


def throughput(run, seconds):
    """Steps and samples per second, each over a stretch of steps."""
    times = [seconds(when) for when, _ in run.ends]
    stretch = max(1, len(times) // 200)
    steps, samples = [], []
    for at in range(stretch, len(times), stretch):
        took = max(times[at] - times[at - stretch], 1e-9)
        steps.append([times[at], at, stretch / took])
        samples.append([times[at], at, sum(count for _, count in run.ends[at - stretch + 1:at + 1]) / took])
    made = [{"name": "steps per second", "points": steps}]
    return made + ([{"name": "samples per second", "points": samples}] if any(point[2] for point in samples) else [])


def thinned(points):
    """Not more than MOST_POINTS of them: the first, the last, and every so manieth."""
    step = -(-len(points) // MOST_POINTS)
    return points if step <= 1 else points[:-1:step] + points[-1:]


def number(value):
    """A number as JSON has it; what is not finite in words."""
    return value if math.isfinite(value) else str(value)


# --- time -------------------------------------------------------------------------------------------------------------


def parts(profile):
    """What the time went to."""
    if profile is None:
        return []
    return [{"name": name, "seconds": spent / 1e9, "says": model.PARTS[name]} for name, spent in profile.parts.items()
            if spent > 0]


def rows(profile, by):
    """The rows of a table of the profile."""
    if profile is None:
        return []
    return [{"name": one.name, "count": one.count, "total": one.total / 1e9, "recording": one.recording / 1e9,
             "preparing": one.preparing / 1e9, "running": one.running / 1e9, "copying": one.copying / 1e9,
             "waiting": one.waiting / 1e9, "bytes": one.nbytes, "flops": one.flops, "device": one.device,
             "limit_share": one.limit_share} for one in profile.rows(by) if one.total][:MOST_ROWS]


def sources(profile, recording):
    """{name of a file: its lines} of the files that lines of the tables are in."""
    if profile is None:
        return {}
    names = {row.name.removesuffix(" (backward)") for row in profile.rows("line")[:MOST_ROWS]}
    names |= {event.line for event in recording.events} if recording else set()
    paths = {os.path.basename(path): path for module in list(sys.modules.values())
             if (path := getattr(module, "__file__", None))}
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main:
        paths[os.path.basename(main)] = main
    found = {}
    for file in sorted({name.rpartition(":")[0] for name in names if ":" in name}):
        lines = linecache.getlines(paths.get(file, file))
        if lines:
            found[file] = [line.rstrip("\n") for line in lines[:MOST_SOURCE_LINES]]
    return found


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(recording):
    """Of each device: bytes by line over time, and what was alive at the peak."""
    return [timeline(peak.device, peak, [event for event in recording.events if event.device == peak.device], recording)
            for peak in used(recording)]


def used(recording):
    """The peaks of the devices that had bytes meanwhile: the process may have opened others before, for other work."""
    return [peak for peak in recording.peaks.values() if peak.nbytes] if recording is not None else []


def timeline(name, peak, events, recording):
    """The memory of one device: `series`, one of each of the largest lines, over `times`, in seconds."""
    largest = [tally.name for tally in peak.lines[:SHOWN_LINES]]
    series: dict = {line: [] for line in (BEFORE, *largest, OTHERS)}
    now = dict.fromkeys(series, 0)
    now[BEFORE] = peak.before
    times, at = [], 0
    span = max(recording.end - recording.start, 1)
    marks = sorted({recording.start + span * i // MOST_TIMES for i in range(MOST_TIMES + 1)} | {highest(events)})
    for mark in marks:
        while at < len(events) and events[at].time <= mark:
            event = events[at]
            line = event.line if event.line in now else OTHERS
            if event.nbytes < 0 and now[line] < -event.nbytes:    # it was there before observation began
                now[BEFORE] = max(now[BEFORE] + event.nbytes, 0)
            else:
                now[line] += event.nbytes
            at += 1
        times.append((mark - recording.start) / 1e9)
        for line, values in series.items():
            values.append(now[line])
    totals = [sum(values) for values in zip(*series.values())]
    return {"device": name, "times": times, "peak": peak.nbytes, "peak_at": times[totals.index(max(totals))],
            "series": [{"name": line, "values": values} for line, values in series.items() if any(values)],
            "alive": [{"name": tally.name, "bytes": tally.nbytes, "count": tally.count, "largest": tally.largest}
                      for tally in peak.lines[:20]],
            "roles": {role: nbytes for role, nbytes in peak.roles.items() if nbytes},
            "modules": [{"name": tally.name, "bytes": tally.nbytes} for tally in peak.modules[:20]],
            "dropped": recording.dropped}


def highest(events):
    """When most was in use, which a look now and then would miss."""
    now, best = 0, (0, events[0].time if events else 0)
    for event in events:
        now += event.nbytes
        best = max(best, (now, event.time), key=lambda each: each[0])
    return best[1]


def finding(one):
    """A finding of watch."""
    return {"name": one.name, "line": one.line, "source": one.source, "text": one.text, "cost": one.cost,
            "fix": one.fix, "count": one.count, "others": [str(other) for other in one.other_lines]}

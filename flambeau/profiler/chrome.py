"""A Profile as a trace in Chrome's trace event format, which Perfetto, Chrome and TensorBoard open.

Spans and the CPU's steps are complete events ("X") of their threads, steps of other devices stand in rows of their own,
arrows lead from the call of an operation to the step that computed it, and memory is a counter.

Complete events of a thread have to lie side by side, or one inside of the other: Perfetto drops what begins before
its neighbour has ended, be it by a nanosecond. It reads times as doubles, of microseconds, and cuts them off to
nanoseconds. So times count from the beginning of the profile, and stand a quarter of a nanosecond above the whole one:
cut off they are what was measured. Numbers of threads have 32 bits there; they are counted from that of the process.
"""
import gzip
import json
import os

from .model import PART_OF_KIND

CATEGORIES = {"operation": "cpu_op", "node": "cpu_op", "backward": "cpu_op", "optimizer": "user_annotation",
              "scope": "user_annotation", "step": "user_annotation", "module": "python_function",
              "copying": "gpu_memcpy", "run": "run", "planning": "plan", "compiling": "compile", "waiting": "wait",
              "observing": "overhead"}
ARROWS_AT_MOST = 20_000


def write_trace(profile, path, metadata=None):
    """Write the trace; packed, where the name of the file ends in .gz."""
    path = os.fspath(path)
    trace = as_trace(profile, metadata)
    if path.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(trace, file)
    else:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace, file)


def as_trace(profile, metadata=None):
    """The trace as JSON has it. Times are in microseconds."""
    pid = os.getpid()
    begin = min([span.start for span in profile.spans] + [step.start for step in profile.steps]
                + [one.time for one in profile.memory], default=0)
    tids = _thread_numbers(profile, pid)

    def at(nanoseconds):
        return _us(nanoseconds - begin)
    events = [_meta("process_name", pid, 0, {"name": f"python {pid}"}),
              _meta("process_labels", pid, 0, {"labels": "CPU"})]
    for thread, name in profile.threads.items():
        events.append(_meta("thread_name", pid, tids[thread], {"name": f"thread {tids[thread]} ({name})"}))
    rows = _device_rows(profile)
    for device, row in rows.items():
        events += [_meta("process_name", row, 0, {"name": device}), _meta("process_labels", row, 0, {"labels": device}),
                   _meta("thread_name", row, 0, {"name": f"{device} steps"})]
    for number, span in enumerate(profile.spans):
        events.append({"ph": "X", "cat": CATEGORIES[span.kind], "name": span.name, "pid": pid, "tid": tids[span.thread],
                       "ts": at(span.start), "dur": _us(span.end - span.start), "args": _about_span(number, span)})
    arrows = 0
    for step in profile.steps:
        where = (pid, tids[step.thread]) if step.device == "cpu" else (rows[step.device], 0)
        events.append({"ph": "X", "cat": "kernel" if step.kind != "transfer" else "gpu_memcpy", "name": step.name,
                       "pid": where[0], "tid": where[1], "ts": at(step.start), "dur": _us(step.nanoseconds),
                       "args": _about_step(profile, step)})
        for share in step.shares:
            if share.span is not None and arrows < ARROWS_AT_MOST:
                arrows += 1
                span = profile.spans[share.span]
                name = {"name": "computes", "cat": "ac2g", "id": arrows}
                events.append({"ph": "s", **name, "pid": pid, "tid": tids[span.thread], "ts": at(span.start)})
                events.append({"ph": "f", "bp": "e", **name, "pid": where[0], "tid": where[1], "ts": at(step.start)})
    events += _memory(profile, pid, tids[profile.thread], at)
    known = {key: _as_json(text) for key, text in (metadata or {}).items()}
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": begin, "deviceProperties": [],
            **known, "traceEvents": events, "traceName": "flambeau"}


def _meta(name, pid, tid, args):
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _us(nanoseconds):
    return (nanoseconds + 0.25) / 1000


def _thread_numbers(profile, pid):
    """{what Python calls a thread: its number in the trace}; the one that profiled has the number of the process."""
    threads = [profile.thread, *profile.threads, *[span.thread for span in profile.spans],
               *[step.thread for step in profile.steps]]
    return {thread: pid + number for number, thread in enumerate(dict.fromkeys(threads))}


def _device_rows(profile):
    """{device: the number of its row} of devices besides the CPU."""
    devices = dict.fromkeys(step.device for step in profile.steps if step.device != "cpu")
    return {device: number for number, device in enumerate(devices)}


def _about_span(number, span):
    found = {"External id": number, "kind": span.kind, "part": PART_OF_KIND[span.kind]}
    if span.line:
        found["line"] = span.line
    if span.module:
        found["module"] = span.module
    if span.shapes:
        found["Input Dims"], found["Input type"] = span.shapes, span.dtypes
    if span.order >= 0:
        found["Sequence number"] = span.order
    if span.stack:
        found["Call stack"] = ";".join(span.stack)
    if span.running or span.device_running:
        found["computed in us"] = (span.running + span.device_running) / 1000
    if span.flops:
        found["flops"] = span.flops
    return found


def _about_step(profile, step):
    found = {"kind": step.kind, "device": step.device, "bytes": step.nbytes, "flops": step.flops,
             "over": list(step.sizes), "lines": step.lines,
             "operations": list(dict.fromkeys(share.operation for share in step.shares))}
    seconds = step.nanoseconds / 1e9
    if seconds:
        found["GB/s"], found["Gflop/s"] = step.nbytes / seconds / 1e9, step.flops / seconds / 1e9
        limit = profile.limits.get(step.device)
        if limit is not None:
            found["share of the limit"] = limit.least_seconds(step.nbytes, step.flops) / seconds
    return found


def _memory(profile, pid, tid, at):
    """Counters of the bytes in use, from what was there when the profile began."""
    in_use: dict = {}
    for one in profile.memory:
        in_use[one.device] = in_use.get(one.device, 0) + one.nbytes
        yield {"ph": "C", "name": f"memory of {one.device} since the start", "pid": pid, "tid": 0, "ts": at(one.time),
               "args": {"bytes": in_use[one.device]}}
        yield {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": pid, "tid": tid,
               "ts": at(one.time), "args": {"Bytes": one.nbytes, "Device": one.device, "line": one.line,
                                             "Total Allocated": in_use[one.device]}}


def _as_json(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text

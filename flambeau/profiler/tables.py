"""A Profile as rows and as text: by line, by operation, by kernel and by module."""
from .model import PARTS, ProfileRow

BY = ("line", "operation", "kernel", "module")
PREPARING = frozenset(("planning", "compiling", "run"))
RECORDING = frozenset(("operation", "node", "backward", "optimizer"))
WITHOUT_A_NAME = {"line": "an unknown line", "module": "outside of modules"}


def rows(profile, by):
    """The ProfileRows of a table, the longest first."""
    if by not in BY:
        raise ValueError(f'a profile has no table by {by!r}; it has "line", "operation", "kernel" and "module"')
    found: dict = {}
    least: dict = {}                  # name → (seconds at the machine's limit, seconds) of steps whose limit is known

    def row(name, device=""):
        name = name or WITHOUT_A_NAME.get(by, "")
        return found.get(name) or found.setdefault(name, ProfileRow(name, device=device))
    for step in profile.steps:
        limit = profile.limits.get(step.device)
        doing = "copying" if step.kind == "transfer" else "running"
        for share in _shares(step, by):
            one, part = row(share.name, step.device), share.part
            setattr(one, doing, getattr(one, doing) + round(step.nanoseconds * part))
            one.nbytes += round(step.nbytes * part)
            one.flops += round(step.flops * part)
            one.count += share.count
            if limit is not None and step.kind != "transfer":
                seconds = least.setdefault(one.name, [0.0, 0.0])
                seconds[0] += limit.least_seconds(step.nbytes, step.flops) * part
                seconds[1] += step.nanoseconds * part / 1e9
    if by != "kernel":
        _add_spans(profile, by, row)
    for name, (at_least, seconds) in least.items():
        found[name].limit_share = at_least / seconds if seconds else None
    return sorted(found.values(), key=lambda one: (-one.total, one.name))


class _Part:
    __slots__ = ("name", "part", "count")

    def __init__(self, name, part, count=0):
        self.name, self.part, self.count = name, part, count


def _shares(step, by):
    """To which call a step's time belongs, in this table."""
    if by == "kernel":
        over = f" [{' × '.join(map(str, step.sizes))}]" if step.sizes else ""
        return [_Part(f"{step.kind}: {step.name}{over}", 1.0, 1)]
    if by == "operation":
        return [_Part(share.operation, share.part, int(share.span is None)) for share in step.shares]
    return [_Part(getattr(share, by), share.part) for share in step.shares]


def _add_spans(profile, by, row):
    """Add the time in which nothing was computed: of calls, of what runs need besides their steps, of waiting."""
    spans = profile.spans
    for span in spans:
        if span.kind in ("scope", "module", "step", "observing"):
            continue
        if by == "line":
            one = row(_line(spans, span))
        elif by == "module":
            one = row(span.module)
        else:
            one = row(span.name)
        if span.kind in RECORDING:
            one.recording += span.own
            own_call = span.kind == "operation" and (span.parent is None or spans[span.parent].kind != "operation")
            one.count += 1 if by == "operation" else int(own_call)
        elif span.kind in PREPARING:
            one.preparing += span.own
            one.count += int(by == "operation")
        else:
            setattr(one, span.kind, getattr(one, span.kind) + span.own)
            one.nbytes += span.nbytes
            one.count += int(by == "operation")


def _line(spans, span):
    """The line that a span belongs to: its own, or that of what it is in."""
    while span.line is None and span.parent is not None:
        span = spans[span.parent]
    return span.line


# --- text -----------------------------------------------------------------------------------------------------------


def time_in_words(nanoseconds):
    """A time as a person reads it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.0f} ns"


def number_in_words(number):
    """A large number as a person reads it."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def table(profile, by="line", limit=20):
    """The rows as text. What takes none of the time is left out, and so is a column that no row has a number in."""
    found = [one for one in rows(profile, by) if one.total]
    shown = found if limit is None or limit < 0 else found[:limit]
    columns = [(by, [one.name for one in shown]), ("calls" if by != "kernel" else "runs", [one.count for one in shown]),
               ("share", [f"{one.total / max(profile.wall, 1):.1%}" for one in shown])]
    for name in ("total", "recording", "preparing", "running", "copying", "waiting"):
        if name == "total" or any(getattr(one, name) for one in shown):
            columns.append((name, [time_in_words(getattr(one, name)) if getattr(one, name) else "" for one in shown]))
    columns += [("bytes", [number_in_words(one.nbytes) if one.nbytes else "" for one in shown]),
                ("flops", [number_in_words(one.flops) if one.flops else "" for one in shown])]
    if by == "kernel":
        columns += [("GB/s", [_per_second(one.nbytes, one) for one in shown]),
                    ("Gflop/s", [_per_second(one.flops, one) for one in shown])]
    if any(one.limit_share is not None for one in shown):
        columns.append(("of limit", ["" if one.limit_share is None else f"{one.limit_share:.0%}" for one in shown]))
    text = aligned(columns)
    left = len(found) - len(shown)
    return text + (f"\nand {left} more" if left else "")


def _per_second(amount, row):
    time = row.running + row.copying
    return f"{amount / time:.3g}" if time and amount else ""


def aligned(columns):
    """Columns (title, texts) as lines, the first to the left."""
    lines = [""] * (1 + max((len(texts) for _, texts in columns), default=0))
    for number, (title, texts) in enumerate(columns):
        cells = [title, *map(str, texts)]
        width = max(map(len, cells))
        for at, cell in enumerate(cells):
            lines[at] += f"{cell:<{width}}" if not number else f"  {cell}" if not title else f"  {cell:>{width}}"
    return "\n".join(line.rstrip() for line in lines)


def overview(profile, limit=12):
    """Where the time went: the parts of it, and the tables by line and by kernel."""
    found = profile.parts
    shown = [(part, time) for part, time in found.items() if time]
    parts = aligned([("part", [part for part, _ in shown]), ("time", [time_in_words(time) for _, time in shown]),
                     ("share", [f"{time / max(profile.wall, 1):.1%}" for _, time in shown]),
                     ("", [PARTS[part] for part, _ in shown])])
    beside = "".join(f"\nbeside it, on other threads: {part} {time_in_words(time)}"
                     for part, time in profile.background.items() if time)
    return (f"{time_in_words(profile.wall)} in all\n\n{parts}{beside}\n\n{table(profile, 'line', limit)}\n\n"
            f"{table(profile, 'kernel', limit)}")

"""How many bytes were in use when, and for what: `profile.export_memory_timeline`, in PyTorch's forms and as a page."""
import gzip
import json

CATEGORIES_OF_PYTORCH = ("PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT",
                         "AUTOGRAD_DETAIL", None)
CATEGORY_OF_ROLE = {"parameters": 0, "optimizer state": 1, "gradients": 5, "graph": 4, "other": 3}
COLOURS = ("darkgreen", "goldenrod", "black", "mediumpurple", "crimson", "mediumblue", "royalblue", "grey")
PREEXISTING, CREATE, DESTROY = 1, 2, 4        # PyTorch's numbers for what happened
PICTURE_WIDTH, PICTURE_HEIGHT, PICTURE_MARGIN = 1200, 500, 60         # of the picture


def write_timeline(profile, path, device):
    """Write the timeline of a device in the form that the name of the file asks for."""
    if path.endswith(".html"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(as_page(*points(profile, device), device))
    elif path.endswith(".raw.json.gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(raw(profile, device), file)
    elif path.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(points(profile, device), file)
    else:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(points(profile, device), file)


def raw(profile, device):
    """(nanoseconds, what happened, bytes, category) of each change."""
    found = [(profile.start, PREEXISTING, nbytes, CATEGORY_OF_ROLE[role])
             for role, nbytes in profile.memory_before.get(device, {}).items() if nbytes]
    return found + [(one.time, CREATE if one.nbytes > 0 else DESTROY, one.nbytes, CATEGORY_OF_ROLE[one.role])
                    for one in profile.memory if one.device == device]


def points(profile, device):
    """[microseconds, [0, bytes of each category]] after each change."""
    times: list = []
    sizes: list = []
    for time, _, nbytes, category in raw(profile, device):
        time //= 1000
        if not times or time != times[-1]:
            times.append(time)
            sizes.append(list(sizes[-1]) if sizes else [0] * (len(CATEGORIES_OF_PYTORCH) + 1))
        sizes[-1][category + 1] += nbytes
    return [times, sizes]


def as_page(times, sizes, device):
    """A page with the timeline as a picture, which needs nothing else."""
    if not times:
        return f"<!doctype html><meta charset='utf-8'><title>Memory of {device}</title><p>Nothing was allocated."
    first, last = times[0], max(times[-1], times[0] + 1)
    most = max(max(sum(row) for row in sizes), 1)

    def x(time):
        return PICTURE_MARGIN + (time - first) / (last - first) * (PICTURE_WIDTH - 2 * PICTURE_MARGIN)

    def y(nbytes):
        return PICTURE_HEIGHT - PICTURE_MARGIN - nbytes / most * (PICTURE_HEIGHT - 2 * PICTURE_MARGIN)
    areas, legend = [], []
    for at, (name, colour) in enumerate(zip(CATEGORIES_OF_PYTORCH, COLOURS, strict=True)):
        below, above = ([sum(row[:at + 1]) for row in sizes], [sum(row[:at + 2]) for row in sizes])
        if above == below:
            continue
        upper = _stairs(times, above, x, y)
        lower = _stairs(times, below, x, y)[::-1]
        areas.append(f"<polygon fill='{colour}' fill-opacity='.7' points='{' '.join(upper + lower)}'/>")
        legend.append(f"<tspan fill='{colour}'>■</tspan> {(name or 'unknown').lower().replace('_', ' ')}   ")
    return (f"<!doctype html><html><head><meta charset='utf-8'><title>Memory of {device}</title></head><body>"
            f"<svg viewBox='0 0 {PICTURE_WIDTH} {PICTURE_HEIGHT}' font-family='sans-serif' font-size='14'>"
            f"{''.join(areas)}"
            f"<text x='{PICTURE_MARGIN}' y='24'>{''.join(legend)}</text>"
            f"<text x='{PICTURE_MARGIN}' y='{PICTURE_HEIGHT - 16}'>{(last - first) / 1000:.3f} ms; at most "
            f"{most / 2 ** 20:.2f} MiB of {device}</text></svg></body></html>")


def _stairs(times, heights, x, y):
    """The corners of a line that keeps its height until the next change."""
    found = []
    for at, (time, height) in enumerate(zip(times, heights, strict=True)):
        if at:
            found.append(f"{x(time):.2f},{y(heights[at - 1]):.2f}")
        found.append(f"{x(time):.2f},{y(height):.2f}")
    return found

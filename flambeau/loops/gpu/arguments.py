"""The integers that a kernel's function is given."""


def arguments(kernel, schedule):
    """The names of the function's integers, in order."""
    names = ["count", *(f"size {d}" for d in range(kernel.kept + kernel.reduced))]
    if not schedule.wide:
        names += [f"{what} {d}" for d in schedule.divided for what in ("multiplier", "shift")]
    names += [f"{what} {d}" for d in schedule.tiled for what in ("tiles", "tiles multiplier", "tiles shift")]
    if kernel.cut is not None:
        names.append("block cut")
    for i, access in enumerate(kernel.accesses):
        names += [f"stride {i} {d}" for d, step in enumerate(access.steps) if step == "s"]
        if access.at is not None:
            names.append(f"stride {i} at")
    return names


def field(name):
    """What such an integer is called in the text."""
    return name.replace(" ", "_")

"""Names that others give, in programs, addresses and files, as paths that stay where they belong."""
import os


def inside(folder, name, argument, advice="; give a name that stays inside"):
    """The path of `name` in `folder`, which it may not leave: a ValueError names `argument`, which it came by.

    A link that lies there was made on purpose, and is followed.
    """
    top = os.path.abspath(folder)
    path = os.path.abspath(os.path.join(top, name))
    if path == top or os.path.commonpath([top, path]) != top:
        raise ValueError(f"{argument}={name!r} would be {path}, which is not in {top}{advice}")
    return os.path.join(folder, name)

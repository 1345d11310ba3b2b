"""`torch.utils.model_zoo`: `torch.hub.load_state_dict_from_url` by its older name, and torchvision's progress bar."""
import sys

from ..hub import _show, load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name):
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:                                  # torchvision's downloads show it; it is no dependency of ours
        from tqdm import tqdm
    except ImportError:
        tqdm = Progress
    globals()["tqdm"] = tqdm
    return tqdm


class Progress:
    """The part of `tqdm` that torchvision's downloads use, where tqdm is not installed: a line on how far it is."""

    def __init__(self, iterable=None, total=None, disable=False, **layout):
        self.iterable, self.total, self.disable, self.n = iterable, total, disable, 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __iter__(self):
        for held in self.iterable:
            yield held
            self.update(1)

    def update(self, n=1):
        """So many more bytes are done."""
        self.n += n
        if not self.disable:
            _show(self.n, self.total)

    def close(self):
        """End the line."""
        if not self.disable and self.total is None and sys.stderr.isatty():
            sys.stderr.write("\n")

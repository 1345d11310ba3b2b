"""`torch.__version__` as programs use it: a text that also compares as a version."""
import re

__all__ = ["TorchVersion"]


class TorchVersion(str):
    """A version as text; compared with another version, a text or a tuple of numbers, it is ordered as versions are.

    >>> from flambeau.torch_version import TorchVersion
    >>> version = TorchVersion("2.13.0+flambeau")
    >>> version >= "2.9", version >= (2, 9), version < "2.13.1", version.startswith("2.13")
    (True, True, True, True)
    """

    __slots__ = ()

    def _compare(self, other, operation):
        key = _key(other)
        if key is None:                   # not a version: as texts
            return getattr(str, operation)(self, other)
        return getattr(tuple, operation)(_key(self), key)

    def __lt__(self, other): return self._compare(other, "__lt__")
    def __le__(self, other): return self._compare(other, "__le__")
    def __gt__(self, other): return self._compare(other, "__gt__")
    def __ge__(self, other): return self._compare(other, "__ge__")
    def __eq__(self, other): return self._compare(other, "__eq__")
    def __ne__(self, other): return self._compare(other, "__ne__")

    __hash__ = str.__hash__


_VERSION = re.compile(r"\s*v?(\d+(?:\.\d+)*)(?:[._-]?(dev|a|alpha|b|beta|c|rc|post)[._-]?(\d*))?(?:\+([\w.]+))?\s*",
                      re.IGNORECASE)
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, None: 0, "post": 1}


def _key(version):
    """What versions are ordered by: numbers, stage, local label. None for what is no version."""
    if isinstance(version, tuple | list):
        version = ".".join(map(str, version))
    found = _VERSION.fullmatch(str(version))
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and not numbers[-1]:               # 2.13 is 2.13.0
        numbers.pop()
    label = tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in (found[4] or "").split(".")
                  if part)
    return tuple(numbers), _STAGES[found[2] and found[2].lower()], int(found[3] or 0), label

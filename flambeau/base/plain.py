"""Data classes that give themselves as dictionaries, lists, words and numbers: what JSON has, for reports."""
from dataclasses import fields


class PlainData:
    """A data class whose `to_dict()` has its fields, and what they hold, in what JSON has."""

    __slots__ = ()

    def to_dict(self):
        """The fields, as JSON has them."""
        return {one.name: as_plain(getattr(self, one.name)) for one in fields(self)}


def as_plain(held):
    """`held` and what is in it in what JSON has; what is neither number nor words, nor a PlainData, as words."""
    if isinstance(held, PlainData):
        return held.to_dict()
    if isinstance(held, dict):
        return {str(key): as_plain(one) for key, one in held.items()}
    if isinstance(held, (list, tuple)):
        return [as_plain(one) for one in held]
    return held if held is None or isinstance(held, (bool, int, float)) else str(held)

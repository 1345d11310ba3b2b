"""Data classes that give themselves as dictionaries, lists, words and numbers: what JSON has, for reports."""
from dataclasses import fields


class PlainData:
    """A data class whose `to_dict()` has its fields, and what they hold, in what JSON has."""

    __slots__ = ()

    def to_dict(self):
        """The fields, as JSON has them."""
        return {one.name: as_plain(getattr(self, one.name)) for one in fields(self)}


def as_plain(value):
    """`value` and what is in it in what JSON has; what is neither number nor words, nor a PlainData, as words."""
    if isinstance(value, PlainData):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)

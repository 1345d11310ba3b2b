"""Ranges of keys as conditions that every database knows: of several columns too, without comparing rows.

`(a, b) >= (x, y)` is not in every dialect, and where it is, it often finds no index. Written out it is
`a >= x AND (a > x OR (a = x AND b >= y))`; each bound then has more than one place in the text, in an order that
`range_values` follows.
"""


def range_condition(names, places):
    """The condition that the columns `names` lie between two keys, with the next of `places` for each value."""
    return " AND ".join(one_side(names, sign, places) for sign in (">", "<"))


def one_side(names, sign, places):
    first = f"{names[0]} {sign}= {next(places)}"
    if len(names) == 1:
        return first
    ways = []
    for depth, name in enumerate(names):
        equal = [f"{other} = {next(places)}" for other in names[:depth]]
        last = f"{name} {sign}{'=' if depth == len(names) - 1 else ''} {next(places)}"
        ways.append(" AND ".join([*equal, last]))
    return f"{first} AND ({' OR '.join(f'({way})' for way in ways)})"


def range_values(ranges):
    """The values of these ranges, (first key, last key), in the order of their places."""
    return [value for low, high in ranges for key in (low, high) for value in side_values(key)]


def side_values(key):
    if len(key) == 1:
        return key
    return [key[0], *(key[i] for depth in range(len(key)) for i in range(depth + 1))]

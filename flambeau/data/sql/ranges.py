"""Ranges of keys as conditions that every database knows: of several columns too, without comparing rows.

`(a, b) >= (x, y)` is not in every dialect, and where it is, it often finds no index. Written out it is
`a >= x AND (a > x OR (a = x AND b >= y))`; each bound then stands more than once in the text, in an order that
`range_values` follows.
"""


def range_condition(names, placeholders):
    """The condition that the columns `names` lie between two keys, with the next of `placeholders` for each value."""
    return " AND ".join(one_side(names, sign, placeholders) for sign in (">", "<"))


def one_side(names, sign, placeholders):
    first = f"{names[0]} {sign}= {next(placeholders)}"
    if len(names) == 1:
        return first
    ways = []
    for depth, name in enumerate(names):
        equal = [f"{other} = {next(placeholders)}" for other in names[:depth]]
        last = f"{name} {sign}{'=' if depth == len(names) - 1 else ''} {next(placeholders)}"
        ways.append(" AND ".join([*equal, last]))
    return f"{first} AND ({' OR '.join(f'({way})' for way in ways)})"


def range_values(ranges):
    """The values of these ranges, (first key, last key), in the order of their placeholders."""
    return [value for low, high in ranges for key in (low, high) for value in side_values(key)]


def side_values(key):
    if len(key) == 1:
        return key
    return [key[0], *(key[i] for depth in range(len(key)) for i in range(depth + 1))]

"""Weighted sums of rows of a table, and their gradients: what interpolation in a picture comes down to.

A feature map with its channels last is a table with a row for every pixel. A value between the pixels is a sum of
neighbouring rows, each with a weight, so sampling a map at many places is one operation, `weighted_rows`.
"""
from ..base.op import Op


class weighted_rows(Op):
    """For each row of `index` [n, taps], the sum of those rows of `table` [rows, columns], times its row of `weight`.

    Every index is in range, by promise. Native code takes contiguous operands.
    """

    forms = ""

    def meta(table, index, weight): return table.like(shape=(index.shape[0], table.shape[1]))

    def ref(xp, table, index, weight):
        out = xp.zeros((len(index), table.shape[1]), table.dtype)
        for tap in range(index.shape[1]):
            out += table[index[:, tap]] * weight[:, tap, None]
        return out

    def d_table(g, table_spec, index, weight): return spread_rows(g.contiguous(), index, weight, table_spec.shape[0])
    def d_weight(g, table, index):             return taken(table, index, g)

    def body(k, table, index, weight):
        if not index.numel or not table.numel or weight.dtype is not table.dtype:
            return NotImplemented
        out = [(table.dtype, (index.shape[0], table.shape[1]))]
        made = k.library("sum_weighted_rows", (table, index, weight), out, ())
        return NotImplemented if made is None else made[0]


class spread_rows(Op):
    """Zeros of `rows` rows with each row of `input`, times its row of `weight`, added at its row of `index`."""

    forms = ""

    def meta(input, index, weight, rows): return input.like(shape=(rows, input.shape[1]))

    def ref(xp, input, index, weight, rows):
        out = xp.zeros((rows, input.shape[1]), input.dtype)
        for tap in range(index.shape[1]):
            xp.add.at(out, index[:, tap], input * weight[:, tap, None])
        return out

    def d_input(g, index, weight): return weighted_rows(g.contiguous(), index, weight)
    def d_weight(g, input, index): return taken(g, index, input)

    def body(k, input, index, weight, rows):
        if not index.numel or not input.numel or weight.dtype is not input.dtype:
            return NotImplemented
        made = k.library("add_weighted_rows", (input, index, weight), [(input.dtype, (rows, input.shape[1]))], ())
        return NotImplemented if made is None else made[0]


def taken(table, index, along):
    """For each element of `index`, how far its row of `table` points along the row of `along` with its number."""
    rows = table.index_select(0, index.reshape(-1)).reshape(*index.shape, table.shape[1])
    return (rows * along.unsqueeze(1)).sum(2)

"""The instruction of an in-place write into part of a storage: no declared operation, with an entry of its own."""
from ..base.entry import Entry


class update:
    """Its operation, to compare with; made by `record.write_part`, never called."""

    effect = False


update_entries: dict = {}     # (whole, view, source) → its entry: equal writes are equal instructions


def infer_update(key):
    """The entry of a write not seen before: of the spec `source` into `view`, a part of a storage of spec `whole`."""
    if len(update_entries) > 100_000:
        update_entries.clear()
    entry = update_entries[key] = Entry()
    entry.op, entry.template, entry.param_at, entry.zeros = update, (0, 1), (), (0, 0)
    entry.casts = entry.wrap = entry.rounded = None
    entry.many, entry.simple, entry.nbytes, entry.weight = False, True, 0, 0
    entry.outs, entry.kinds = key[:1], key[1:]
    entry.device = key[0].device
    entry.compiles = entry.device.backend.compiles
    return entry

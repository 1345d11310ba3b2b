"""The instruction of an in-place write into part of a storage: no declared operation, with an entry of its own."""


class update:
    """Its operation, to compare with; made by `record.write_part`, never called."""

    effect = False


class UpdateEntry:
    """What is known of such a write: `outs` is the whole storage, `kinds` the view that is written and its source."""

    op, casts, many, template, simple, param_at, wrap, zeros = update, None, False, (0, 1), True, (), None, (0, 0)
    nbytes, weight, rounded = 0, 0, None
    __slots__ = ("outs", "kinds", "device", "compiles")


update_entries: dict = {}     # (whole, view, source) → its entry: equal writes are equal instructions


def infer_update(key):
    """The entry of a write not seen before: of the spec `source` into `view`, a part of a storage of spec `whole`."""
    if len(update_entries) > 100_000:
        update_entries.clear()
    entry = update_entries[key] = UpdateEntry()
    entry.outs, entry.kinds = key[:1], key[1:]
    entry.device = key[0].device
    entry.compiles = entry.device.backend.compiles
    return entry

"""The instruction of an in-place write into part of a storage: no declared operation, with an entry of its own."""


class update:
    """Its operation, to compare with; made by `record.write_part`, never called."""


class UpdateEntry:
    """What is known of such a write: `outs` is the whole storage, `kinds` the view that is written and its source."""

    op, casts, many, template, simple, param_at, wrap, zeros = update, None, False, (0, 1), True, (), None, (0, 0)
    nbytes, rounded = 0, None
    __slots__ = ("outs", "kinds", "compiles")


_entries: dict = {}           # (whole, view, source) → its entry: equal writes are equal instructions


def update_entry(whole, view, source):
    """The entry of a write of `source` into `view`, a part of a storage of spec `whole`."""
    key = (whole, view, source)
    entry = _entries.get(key)
    if entry is None:
        if len(_entries) > 100_000:
            _entries.clear()
        entry = _entries[key] = UpdateEntry()
        entry.outs, entry.kinds = key[:1], key[1:]
        entry.compiles = whole.device.backend.compiles
    return entry

"""The instruction of an in-place write into part of a storage: no declared operation, with an entry of its own."""
from ...base.entry import Entry
from ...base.spec import on_too_many


class update:
    """Its operation, to compare with; made by `record.write_part`, never called."""

    effect = False


def with_part(backend, memory, view, offset, array):
    """`memory`, an array of bytes, after `array` was written into the part of it that the spec `view` sees."""
    if view.numel:
        backend.put(backend.look(memory, view, offset), array)
    return memory


MAX_UPDATES = 50_000
update_entries: dict = {}     # (whole, view, source) → its entry: equal writes are equal instructions
on_too_many.append(update_entries.clear)


def infer_update(key):
    """The entry of a write not seen before: of the spec `source` into `view`, a part of a storage of spec `whole`."""
    if len(update_entries) > MAX_UPDATES:
        update_entries.clear()
    entry = Entry()
    entry.op, entry.template, entry.param_at, entry.zeros = update, (0, 1), (), (0, 0)
    entry.casts = entry.wrap = entry.rounded = None
    entry.many, entry.simple, entry.nbytes, entry.weight = False, True, 0, 0
    entry.outs, entry.input_specs = key[:1], key[1:]
    entry.device = key[0].device
    entry.compiles = entry.device.backend.compiles
    return update_entries.setdefault(key, entry)          # as a whole: see Note [First use] in base/once.py

"""Memory in words: tables of a snapshot and of a record."""
from ..backends.cpu.memory.allocator import bytes_in_words

LINES = 10


def snapshot_in_words(snapshot, lines=LINES):
    """Device by device: the allocator's numbers, what they are for, and who holds most."""
    return "\n\n".join(_device_in_words(one, lines) for one in snapshot.devices)


def _device_in_words(one, lines):
    text = [f"{one.device}: {bytes_in_words(one.allocated)} in use, at most {bytes_in_words(one.peak)}, "
            f"{bytes_in_words(one.reserved)} held of the {bytes_in_words(one.limit)} that there may be"]
    if one.outside:
        text.append(f"  and {bytes_in_words(one.outside)} of tensors in NumPy's own memory")
    roles = {role: nbytes for role, nbytes in one.by_role().items() if nbytes}
    text += [f"  {role:<16} {bytes_in_words(nbytes):>10}" for role, nbytes in roles.items()]
    tallies = one.by_line()[:lines]
    if tallies:
        text += ["  by line", *_tallied(tallies)]
    tallies = one.by_module()[:lines]
    if tallies:
        text += ["  by module", *_tallied(tallies)]
    named = [holding for holding in one.holdings if holding.name or holding.keepers][:lines]
    if named:
        text.append("  the largest that have a name, or something that is known to hold them")
        text += [f"    {bytes_in_words(holding.nbytes):>10}  {holding.kind}  {holding.role}, made at {holding.line}"
                 + (f": {', '.join(holding.keepers or [holding.name])}") for holding in named]
    return "\n".join(text)


def _tallied(tallies):
    width = max(len(tally.name) for tally in tallies)
    return [f"    {tally.name:<{width}}  {bytes_in_words(tally.nbytes):>10} in {tally.count}"
            + (f", the largest {tally.largest}" if tally.largest else "") for tally in tallies]


def record_in_words(record, lines=LINES):
    """The peak of each device: how much, for what, for which lines and modules."""
    parts = []
    for peak in record.peaks.values():
        text = [f"{peak.device}: at most {bytes_in_words(peak.nbytes)} in use, {bytes_in_words(peak.before)} of them "
                "from before"]
        text += [f"  {role:<16} {bytes_in_words(nbytes):>10}" for role, nbytes in peak.roles.items() if nbytes]
        for title, tallies in (("by line", peak.lines), ("by module", peak.modules)):
            if tallies:
                text += [f"  {title}", *_tallied(tallies[:lines])]
        parts.append("\n".join(text))
    return "\n\n".join(parts)

"""What is wrong with a batch that cannot be put together: which sample is unlike the others, and where."""
import collections
import collections.abc

import numpy as np

from ....tensor.tensor import Tensor

INDICES_NAMED = 8             # how many indices of a batch are said
NESTING_LOOKED_AT = 6


def explain(error, samples, indices):
    """Add to `error`, which came up when `samples` were put together, the sample that differs and in what."""
    told = difference(samples, indices) if isinstance(samples, list) and len(samples) == len(indices) else None
    if told is None:
        first = ", ".join(str(index) for index in list(indices)[:INDICES_NAMED])
        more = f" and {len(indices) - INDICES_NAMED} more" if len(indices) > INDICES_NAMED else ""
        told = f"while the samples {first}{more} were put together by collate_fn"
    error.add_note(told)


def difference(samples, indices):
    """A sentence about the first sample that is unlike most of the others; None if all look the same."""
    forms = [dict(form(sample)) for sample in samples]
    for path in dict.fromkeys(path for each in forms for path in each):
        found = [each.get(path, "nothing") for each in forms]
        counts = collections.Counter(found)
        if len(counts) > 1:
            usual = counts.most_common(1)[0][0]
            odd = next(i for i, text in enumerate(found) if text != usual)
            where = f" at {path}" if path else ""
            return (f"sample {indices[odd]} (position {odd} of the batch) has {found[odd]}{where}, where sample "
                    f"{indices[found.index(usual)]} has {usual}")
    return None


def form(sample, path="", depth=0):
    """(path, what is there in words) of a sample and of everything in it; a container before its parts."""
    if isinstance(sample, Tensor):
        yield path, f"a tensor {sample.dtype} {list(sample.shape)}"
    elif isinstance(sample, np.ndarray):
        yield path, f"an array {sample.dtype} {list(sample.shape)}"
    elif isinstance(sample, collections.abc.Mapping):
        yield path, f"a {type(sample).__name__} with the keys {', '.join(sorted(map(repr, sample)))}"
        if depth < NESTING_LOOKED_AT:
            for key in sample:
                yield from form(sample[key], f"{path}[{key!r}]", depth + 1)
    elif isinstance(sample, collections.abc.Sequence) and not isinstance(sample, str | bytes):
        yield path, f"a {type(sample).__name__} of {len(sample)}"
        if depth < NESTING_LOOKED_AT:
            for i, part in enumerate(sample):
                yield from form(part, f"{path}[{i}]", depth + 1)
    else:
        yield path, "None" if sample is None else f"a number ({type(sample).__name__})" \
            if isinstance(sample, int | float | np.number) else f"a {type(sample).__name__}"

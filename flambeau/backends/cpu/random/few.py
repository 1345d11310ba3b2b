"""Draw a few samples in C, where NumPy's calls would take longer than all else.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. few.pyx has what C does, and where it is
not compiled, NumPy draws: draws.py says what each sample is, and both give the same bits and leave the same state.
"""
MAX_FEW = 1024                # beyond, NumPy is as quick
RAW_WORDS, UNIFORM, NORMAL, INTEGERS, BERNOULLI, ODDS = range(6)
EXPONENTIAL, GEOMETRIC, CAUCHY, LOG_NORMAL, PERMUTATION = range(6, 11)


def drawn(source, kind, count, dtype, first, second, odds):
    """`count` samples of a `kind` from the stream `source`, an array of the NumPy `dtype`; None, and nothing is drawn,
    where NumPy is to do it.

    `first` and `second` are what the kind goes by: the ends of a range, mean and deviation, a probability, the size of
    a range of integers and where it begins; `odds`, an array, the probability of each.
    """
    return None

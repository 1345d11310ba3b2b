"""Where the elements of PostgreSQL's binary arrays lie, when some of them are NULL."""
import numpy as np


def element_starts(words, size):
    """Where elements start, each a word with its length (-1: NULL, nothing follows) and `size` words behind it.

    Whether a word is a length is known only from the one before it, so that the starts are found in rounds: with what
    leads 2**k elements on, the first 2**k starts lead to the next as many.
    """
    count = len(words)
    jump = np.append(np.minimum(np.arange(count) + np.where(words == -1, 1, 1 + size), count), count)
    starts = np.zeros(1, np.int64)
    while True:
        more = jump[starts]
        more = more[more < count]
        if not len(more):
            return starts
        starts = np.concatenate([starts, more])
        jump = jump[jump]

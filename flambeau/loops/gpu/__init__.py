"""Render a kernel for a GPU: one function, for the way through its positions that its schedule says.

    kernel name(const Given given)

`Given` has fields of eight bytes: an address for each access, the integers of `arguments`, then the numbers. How the
text is spelled is the KernelDialect's to say (loops/dialects). There are three ways through a kernel's positions
(`GridSchedule.way`, in backends/cuda/schedule.py):

    positions   a thread has the passes of some positions to itself: maps, and reductions down columns. Neighbours along
                the last kept dimension are read and written by up to 16 bytes at a time.
    rows        some threads share a row, lanes round robin; what they have added up is folded, halves onto halves.
                Where the kernel carries reductions down columns, they go through a block of rows, one after the other.
    turned      a map some of whose operands lie across: a square of them goes through shared memory.

An expression is written where all it depends on is known: once for a row, not for every element of it. `TextScope`s are
these places, from outside in. What is side by side in a thread is written out, a variable each, so that nothing is left
to the compiler but what compilers are good at.

    render.py       from a kernel to its text
    arguments.py    the integers that a function is given
    writer.py       the text as a whole, scopes and expressions
    memory.py       addresses, loads and stores
    reductions.py   accumulators
    positions.py, rows.py, turned.py    the three ways
    fold.py         accumulators of the threads that share a row become one
"""

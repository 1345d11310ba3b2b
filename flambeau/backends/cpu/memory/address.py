"""Where an array of NumPy's lies in memory.

A part of the compiled core: see Note [One source, two speeds] in base/core.py. address.pyx reads it from the array,
where NumPy would make a table of words first.
"""


def address(array):
    """Where the array starts in memory."""
    return array.__array_interface__["data"][0]

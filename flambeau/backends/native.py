"""What the CPU does with kernels: machine code for them, and functions of a library of its own."""
from . import cpu, library


def processor():
    """What code is compiled for, in words."""
    return f"this processor, {cpu.processor().cpu}"


def forget():
    """Compile everything anew: another processor was chosen."""
    library.forget()

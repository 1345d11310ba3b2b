"""What packages import of PyTorch's insides: `flambeau.private._C` stands for `torch._C`, and so on.

PyTorch promises none of it, so there is only what packages need, and each name says which. A name either does what
PyTorch's does, or answers truthfully (there is one process, nothing is being traced), or raises NotImplementedError.
All of it is imported when it is asked for.
"""

"""The Tensor: a view of a storage with its autograd face, and the one door through which operations are called."""

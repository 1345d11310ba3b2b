"""The languages that kernels of GPUs are written in: a KernelDialect each (see dialect.py)."""

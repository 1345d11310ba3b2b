"""`torch.distributed`, answered honestly: there is one process. What one process can do alone works; see
distributed_c10d.

`is_available()` is False, so that programs take their way for one process. What splits a model between processes
(`fsdp`, `tensor`, `pipelining`, `rpc`, …) can be imported and named, and is missing.
"""
from . import autograd, rpc
from .distributed_c10d import *
from .distributed_c10d import __getattr__, is_available

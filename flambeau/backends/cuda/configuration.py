"""`PYTORCH_CUDA_ALLOC_CONF`: what the environment says about the memory of GPUs, and what each key means here."""
import os
import re
from typing import NamedTuple

ALLOC_CONF = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")       # the newer name wins, as in PyTorch


class Configuration(NamedTuple):
    """What `PYTORCH_CUDA_ALLOC_CONF` says, as far as it means something here.

    `expandable_segments`, and `backend:cudaMallocAsync`: memory comes from CUDA's own pool, which maps pages as it
    grows, so that freed blocks of other sizes are never in the way. `garbage_collection_threshold`: where the pool
    holds more than this part of what the process may have, idle blocks are given back to the device.
    `per_process_memory_fraction`: as `set_per_process_memory_fraction()`. `max_idle_bytes`, Flambeau's own: idle blocks
    are given back where they are more than so many bytes in all.
    """

    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0
    per_process_memory_fraction: float = 1.0
    max_idle_bytes: int | None = None


# What PyTorch takes and Flambeau has no use for, and why.
WITHOUT_EFFECT = {
    "max_split_size_mb": "the pool cuts a block of any size, and joins its parts again when they are idle",
    "roundup_power2_divisions": "sizes are rounded to 512 bytes",
    "roundup_bypass_threshold_mb": "sizes are rounded to 512 bytes",
    "pinned_use_cuda_host_register": "page-locked memory is allocated as such",
    "pinned_num_register_threads": "page-locked memory is allocated as such",
    "pinned_use_background_threads": "page-locked memory is allocated as such",
    "pinned_reserve_segment_size_mb": "page-locked memory is allocated as such",
    "release_lock_on_cudamalloc": "the interpreter is free while the device allocates",
    "release_lock_on_hipmalloc": "there is no HIP here",
    "graph_capture_record_stream_reuse": "memory of another stream is kept until that stream is through",
}
FLAGS = {"true": True, "false": False, "1": True, "0": False}


def read_configuration(text):
    """The Configuration that a text like `expandable_segments:True,garbage_collection_threshold:0.8` says."""
    said: dict = {}
    for pair in filter(None, (part.strip() for part in re.split(r",(?![^\[]*\])", text))):   # not inside of a list
        name, colon, value = (word.strip() for word in pair.partition(":"))
        if not colon or not value:
            raise RuntimeError(f"Error parsing PYTORCH_CUDA_ALLOC_CONF={text!r}: {pair!r} is not a name:value")
        if name == "expandable_segments":
            _need(value.lower() in FLAGS, text, pair, "True or False")
            said[name] = FLAGS[value.lower()]
        elif name == "backend":
            _need(value in ("native", "cudaMallocAsync"), text, pair, "native or cudaMallocAsync")
            said["expandable_segments"] = said.get("expandable_segments", False) or value == "cudaMallocAsync"
        elif name in ("garbage_collection_threshold", "per_process_memory_fraction"):
            _need(_is_number(value) and 0 < float(value) <= 1, text, pair, "a number between 0 and 1")
            said[name] = float(value)
        elif name == "max_split_size_mb":
            _need(value.isdecimal() and int(value) > 20, text, pair, "a whole number greater than 20")
        elif name == "max_idle_bytes":
            _need(value.isdecimal(), text, pair, "a whole number")
            said[name] = int(value)
        elif name not in WITHOUT_EFFECT:
            known = [*Configuration._fields, "backend", *WITHOUT_EFFECT]
            raise RuntimeError(f"Unrecognized key '{name}' in CUDA allocator config, PYTORCH_CUDA_ALLOC_CONF={text!r}; "
                               f"the keys are {', '.join(known)}")
    return Configuration(**said)


def _need(condition, text, pair, want):
    if not condition:
        raise RuntimeError(f"Error parsing PYTORCH_CUDA_ALLOC_CONF={text!r}: {pair!r} must have {want}")


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def configuration():
    """What the environment says."""
    return read_configuration(next((os.environ[name] for name in ALLOC_CONF if os.environ.get(name)), ""))

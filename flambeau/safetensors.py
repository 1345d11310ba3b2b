"""safetensors files in and out, by the names of the library's `safetensors.torch`; see docs/saving.md.

It stands under that name in a program whose `torch` is Flambeau where the library is not installed.
"""
from .serialization import sharing as _sharing
from .serialization.safetensors import (
    SafetensorError,
    load,
    load_file,
    load_model,
    safe_open,
    save,
    save_file,
    save_model,
)
from .serialization.sharing import storage_ptr, storage_size

__path__: list = []           # where the library is not installed, this stands in its place: `import safetensors.torch`
__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model",
           "storage_ptr", "storage_size"]
# what transformers, accelerate, diffusers and huggingface_hub import of it besides
globals().update({name: value for name, value in vars(_sharing).items() if name in (
    "_SIZE", "_TYPES", "_end_ptr", "_filter_shared_not_shared", "_find_shared_tensors", "_getdtype", "_is_complete",
    "_remove_duplicate_names", "_to_ndarray", "_tobytes", "_view2torch")})

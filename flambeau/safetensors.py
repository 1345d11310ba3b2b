"""safetensors files in and out, by the names of the library's `safetensors.torch`; see docs/saving.md."""
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

__path__: list = []           # where the library is not installed, this stands in its place: `import safetensors.torch`
__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

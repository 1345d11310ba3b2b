"""safetensors: files written and read, whole, by name and by slice, every dtype, metadata, shared tensors, models."""
import hashlib
import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

from tests.programs import array, fill

PACKAGES = ["safetensors"]
QUICK = True
LACKS = ["a damaged file raises Flambeau's FileError, which is a RuntimeError and says what is wrong with the file, "
         "and not safetensors' SafetensorError"]

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool uint16 uint32 uint64 float8_e4m3fn " \
         "float8_e5m2 complex64".split()


def _tensors():
    return {"weight": array(4, 6), "bias": array(6, seed=1), "steps": torch.arange(5), "none": torch.zeros(0, 3),
            "one": torch.tensor(2.5)}


def _content(file):
    """What a file's bytes say, without the metadata: what is where, and the checksum of the data."""
    size = int.from_bytes(file[:8], "little")
    header = json.loads(file[8:8 + size])
    header.pop("__metadata__", None)
    return {"header": json.dumps(header, sort_keys=True), "data": hashlib.sha256(file[8 + size:]).hexdigest()[:16]}


def files():
    """The bytes of a file are what PyTorch writes, but for the metadata; what is read from it is what was written."""
    save_file(_tensors(), "a.safetensors", metadata={"format": "pt", "by": "hand"})
    read = load_file("a.safetensors")
    return {"content": _content(Path("a.safetensors").read_bytes()), "names": sorted(read),
            "equal": all(torch.equal(read[name], held) for name, held in _tensors().items()),
            "in memory": _content(save(_tensors())),
            "shapes": {name: list(held.shape) for name, held in sorted(load(save(_tensors())).items())}}


def dtypes():
    """Every dtype goes into a file and comes back."""
    out = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        save_file({"x": torch.tensor([0.0, 1.0, 2.5, 3.0]).to(dtype)}, f"{name}.safetensors")
        back = load_file(f"{name}.safetensors")["x"]
        out[name] = {"dtype": str(back.dtype), **_content(Path(f"{name}.safetensors").read_bytes())}
    return out


def opened():
    """A file opened: its names, its metadata, one tensor, a slice of one."""
    save_file(_tensors(), "a.safetensors", metadata={"by": "hand"})
    with safe_open("a.safetensors", framework="pt", device="cpu") as file:
        part = file.get_slice("weight")
        return {"names": sorted(file.keys()), "by": file.metadata()["by"], "weight": file.get_tensor("weight"),
                "shape": list(part.get_shape()), "dtype": part.get_dtype(), "rows": part[1:3], "block": part[:, 2:5]}


def models():
    """A model with shared weights is saved once and loaded whole; what cannot be saved is refused."""
    net = fill(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))
    net[1].weight = net[0].weight
    save_model(net, "net.safetensors")
    again = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    again[1].weight = again[0].weight
    missing = load_model(again, "net.safetensors")
    out = {"missing": [sorted(names) for names in missing], "given": again(array(2, 4))}
    try:
        save_file({"a": array(3, 4).t()}, "strided.safetensors")
    except ValueError:
        out["strided"] = "ValueError"
    return out

"""Every module that PyTorch has can be imported under its name, and has a spec; what is in the private ones answers."""
import importlib
import importlib.metadata
import importlib.util
import os
import pickle
import sys
import typing
import warnings

import flambeau

flambeau.install_as_torch()

import torch

from flambeau.base.names import modules, packages
from flambeau.compat.missing import Missing, MissingModule

# the distribution
assert importlib.metadata.version("torch") == torch.__version__ == "2.13.0+flambeau"
assert importlib.metadata.metadata("torch")["Name"] == "torch"
assert "torch" in importlib.metadata.packages_distributions()["torch"]
assert "torch" in {found.metadata["Name"] for found in importlib.metadata.distributions()}
for absent in ("torchaudio", "torchtext"):
    assert (importlib.util.find_spec(absent) is None) == (importlib.machinery.PathFinder.find_spec(absent) is None)

# every module, ours or missing
with warnings.catch_warnings():
    warnings.simplefilter("error")
    there, missing = [], []
    for name in sorted(modules(), key=lambda name: (name.count("."), name)):
        if name.startswith("torch.utils.tensorboard") and importlib.util.find_spec("tensorboard") is None:
            continue                                         # there without its package no more than in PyTorch
        found = importlib.import_module(name)
        assert sys.modules[name] is found, name
        spec = importlib.util.find_spec(name)
        assert spec is not None and found.__spec__ is spec, name
        assert (name not in packages()) or hasattr(found, "__path__"), name
        (missing if isinstance(found, MissingModule) else there).append(name)
        if isinstance(found, MissingModule):
            assert isinstance(found.anything, Missing) and not isinstance(3, found.anything), name
            assert not hasattr(found, "__wrapped__"), name
assert len(there) > 150 and len(missing) > 1000, (len(there), len(missing))
for name in ("torch.nn.attention.flex_attention", "torch._inductor.config", "torch.distributed.fsdp.wrap",
             "torch.distributed._tensor.experimental"):
    assert name in missing, name
for name in ("torch._C", "torch._C._nn", "torch._dynamo.eval_frame", "torch.cuda.streams", "torch.jit.annotations",
             "torch.nn.quantized", "torch.utils.weak", "torch.futures", "functorch", "torch._jit_internal"):
    assert name in there, name
for name in ("torch.compat", "torch.tensor", "torch.base", "torch.streams", "torch.fsdp", "functorch.nothing"):
    assert importlib.util.find_spec(name) is None, name
# below a module, and as an attribute of it
assert torch.distributed.fsdp.wrap is sys.modules["torch.distributed.fsdp.wrap"] and torch.torch is torch
assert torch._C._nn is sys.modules["torch._C._nn"] and torch._dynamo.config.cache_size_limit == 8

# types that stand in annotations, and refuse to be made
for kind in (torch.cuda.Stream, torch.cuda.ExternalStream, torch.cuda.Event, torch.cuda.CUDAGraph, torch.cuda.graph,
             torch.cuda.StreamContext, torch.Stream, torch.Event, torch.SymInt, torch.SymFloat, torch.SymBool,
             torch.Future, torch.ScriptModule, torch.ScriptFunction, torch.PyTorchFileReader, torch._C._TensorMeta,
             torch.distributed.ReduceOp, torch.distributed.ProcessGroup, torch.profiler.ProfilerActivity):
    assert isinstance(kind, type), kind
    assert typing.get_args(kind | None) == (kind, type(None)) and not isinstance(3, kind)
for make in (torch.cuda.Stream, torch.cuda.Event, torch.cuda.CUDAGraph, lambda: torch.cuda.ExternalStream(1)):
    try:
        make()
    except RuntimeError as error:
        assert "requires CUDA support" in str(error) and "is_available" in str(error)
    else:
        raise AssertionError(make)
for layout in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "strided"):
    found = getattr(torch, layout)
    assert isinstance(found, torch.layout) and repr(found) == f"torch.{layout}"
    assert pickle.loads(pickle.dumps(found)) is found and (torch.ones(1).layout == found) == (layout == "strided")
assert torch.legacy_contiguous_format is torch.contiguous_format

# a world of one
dist = torch.distributed
assert not dist.is_available() and not dist.is_initialized() and (dist.get_rank(), dist.get_world_size()) == (0, 1)
try:
    dist.init_process_group("gloo", world_size=2, rank=0)
except NotImplementedError as error:
    assert "world_size is 2" in str(error)
else:
    raise AssertionError
os.environ["WORLD_SIZE"] = "1"
dist.init_process_group("gloo")
x = torch.arange(3.0)
assert dist.is_initialized() and dist.get_backend() == "gloo" and dist.all_reduce(x) is None
assert dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).wait() and x.tolist() == [0, 1, 2]
held, objects = [torch.zeros(3)], [None]
dist.all_gather(held, x)
dist.all_gather_object(objects, {"a": 1})
assert held[0].tolist() == [0, 1, 2] and objects == [{"a": 1}]
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
with net.no_sync():
    net(x).sum().backward()
assert net.module.weight.grad.tolist() == [[0, 1, 2]] and list(net.state_dict()) == ["module.weight", "module.bias"]
for wrong in (lambda: dist.send(x, 0), lambda: dist.broadcast(x, 1), lambda: dist.init_process_group("gloo"),
              lambda: dist.new_group([0, 1])):
    try:
        wrong()
    except ValueError as error:
        assert "one process" in str(error) or "twice" in str(error)
    else:
        raise AssertionError(wrong)
dist.destroy_process_group()
assert not dist.is_initialized()
print("fine")

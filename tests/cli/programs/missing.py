"""What is missing says so where it is used, by name. The argument chooses what is used; "all" tries everything."""
import sys

import torch
import torch.autograd.profiler_legacy
import torch.distributed
import torch.export
import torch.nn as nn
import torch.onnx
from torch import jit
from torch.utils import benchmark

print("imported")


def script():
    return jit.load("model.pt")


def subclass():
    class Program(torch.export.ExportedProgram):
        pass
    return Program(torch.nn.Linear(1, 1))         # torch.export.ExportedProgram


def attribute():
    return torch.export.Dim.AUTO


def timer():
    return benchmark.Fuzzer([], [])


def context():
    with torch.autograd.profiler_legacy.profile() as found:
        return found


def process_group():
    torch.distributed.TCPStore("localhost", 29500)


def export():
    torch.onnx.export(nn.Linear(1, 1), torch.ones(1), "model.onnx")


def function():
    return torch.sparse_csr_tensor([0, 1], [0], [1.0])


def method():
    return torch.ones(2).to_sparse()


if sys.argv[1] != "all":
    globals()[sys.argv[1]]()
for use in (script, subclass, attribute, timer, context, process_group, export, function, method):
    try:
        use()
    except (NotImplementedError, AttributeError) as error:
        print(f"{use.__name__}: {type(error).__name__}: {error}")

"""torchvision's operators are there once it has asked for its libraries, under the schemas that it calls."""
import pytest

import flambeau as torch
from flambeau import _ops
from flambeau.vision import OPERATORS


@pytest.fixture
def loaded(tmp_path):
    """The paths of torchvision's libraries, loaded; the operators go away afterwards."""
    paths = [str(tmp_path / "torchvision" / name) for name in ("_C.so", "image.pyd")]
    for path in paths:
        torch.ops.load_library(path)
        torch.ops.load_library(path)                                       # a second time nothing happens
    yield paths
    for library in OPERATORS.values():
        for schema, _ in library:
            _ops.undefine(_ops.lookup(schema.partition("(")[0]))
    for path in paths:
        torch.ops.loaded_libraries.discard(path)


def test_operators_are_defined(loaded):
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert torch.ops.torchvision.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist() == [0, 2]
    assert torch.ops.torchvision._cuda_version() == -1
    x = torch.rand(1, 2, 8, 8, requires_grad=True)
    torch.ops.torchvision.roi_align(x, torch.tensor([[0.0, 1, 1, 5, 5]]), 1.0, 2, 2, 2, False).sum().backward()
    assert x.grad.sum().item() == pytest.approx(8)
    with pytest.raises(NotImplementedError, match="no quantized tensors"):
        torch.ops.torchvision.qnms(boxes, boxes[:, 0], 0.5)


def test_every_function_takes_what_its_schema_says(loaded):
    for library in OPERATORS.values():
        for schema, function in library:
            declared = [a.name for a in _ops.lookup(schema.partition("(")[0])._schema.arguments]
            plain = getattr(function, "__wrapped__", function).__code__
            assert plain.co_varnames[:plain.co_argcount] == tuple(declared) or plain.co_flags & 4, schema


def test_kernels_for_autocast_run_where_it_is_on(loaded):
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", lambda dets, scores, threshold: dets.new_zeros(1, dtype=torch.int64), "AutocastCPU")
    boxes, scores = torch.rand(3, 4), torch.rand(3)
    with torch.autocast("cpu"):
        assert torch.ops.torchvision.nms(boxes, scores, 0.5).tolist() == [0]
        with torch.autocast("cpu", enabled=False):
            assert len(torch.ops.torchvision.nms(boxes, scores, 2.0)) == 3
    library._destroy()


def test_other_libraries_are_not_ours(tmp_path):
    for path in (tmp_path / "_C.so", tmp_path / "torchvision" / "other.so"):
        with pytest.raises(OSError, match="Could not load this library"):
            torch.ops.load_library(str(path))

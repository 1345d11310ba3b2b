"""`torch.onnx`: there is no export here. A program can ask whether one goes on, and prepare for one that never
comes."""
from ..compat.missing import rest_of
from . import symbolic_helper

__all__ = ["is_in_onnx_export"]
__getattr__ = rest_of("torch.onnx", export="save the state_dict and export with PyTorch")


def is_in_onnx_export():
    """Whether a model is being exported: never."""
    return False


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Say how an operation is exported, which is never asked for. torchvision says it of its own."""
    if symbolic_name.count("::") != 1 or not all(symbolic_name.split("::")):
        raise RuntimeError(f"Failed to register operator {symbolic_name}. The symbolic name must match the format "
                           "domain::name.")


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    """Take back what `register_custom_op_symbolic` said."""

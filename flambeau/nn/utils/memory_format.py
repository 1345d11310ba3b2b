"""Bring the weights of convolutions into a memory format, module by module."""
from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def converted(module, memory_format, classes):
    for part in module.modules():
        if isinstance(part, classes):
            part.weight.data = part.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """`module` with the weights of its 2-d convolutions laid out in `memory_format`."""
    return converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module, memory_format):
    """`module` with the weights of its 3-d convolutions laid out in `memory_format`."""
    return converted(module, memory_format, (Conv3d, ConvTranspose3d))

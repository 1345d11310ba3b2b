"""`torch._utils_internal`: what differs between PyTorch and PyTorch inside a company. torchvision's tests find files
by it."""
import os


def get_file_path_2(*path_components):
    """torchvision: the parts of a path as one."""
    return os.path.join(*path_components)

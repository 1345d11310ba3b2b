"""`torch.utils._foreach_utils`: lists of tensors by device and dtype, for optimizers that take many tensors at once."""


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """{(device, dtype): (the lists with what goes with the tensors of the first list, their indices in it)}.

    The lists are as long as the first, or empty.
    """
    first = tensorlistlist[0]
    if not first or any(tensors and len(tensors) != len(first) for tensors in tensorlistlist):
        raise RuntimeError("lists of tensors have to be as long as the first, which may not be empty; they have "
                           f"{[len(tensors) for tensors in tensorlistlist]} tensors")
    groups: dict = {}
    for at, tensor in enumerate(first):
        lists, indices = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for tensors, given in zip(lists, tensorlistlist):
            tensors.extend(given[at:at + 1])
        if with_indices:
            indices.append(at)
    return groups


def _get_foreach_kernels_supported_devices():
    """The devices on which PyTorch takes many tensors at once by itself."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices():
    """The devices on which PyTorch has fused optimizers."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _device_has_foreach_support(device):
    """Whether PyTorch would take many tensors at once on `device` by itself."""
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors, device):
    """Whether PyTorch would take these tensors at once."""
    return _device_has_foreach_support(device)

"""What PyTorch's profiler calls the functions that are called here: `aten::add_`, else `flambeau::name`."""
import functools

from .aten import aten_name

# Functions that tell something of a tensor and compute nothing.
UNSHOWN = frozenset("""dim numel size stride storage_offset get_device is_complex is_conj is_contiguous is_inference
    is_floating_point is_neg is_nonzero is_pinned is_same_size is_set_to is_signed requires_grad_ retain_grad
    result_type record_stream set_ backward backwards grad text formatted _is_view __len__ data_ptr element_size
    contains dlpack dlpack_device is_same_size_method is_shared register_hook register_post_accumulate_grad_hook storage
    storage_type untyped_storage truth to_int to_float to_index to_complex array iterate tolist numpy new deep reduce
    array_function array_ufunc broadcast_shapes""".split())


@functools.cache
def operator_name(name):
    """`aten::name` of one of our functions or operations, `flambeau::name` where PyTorch has none of that name."""
    known = aten_name(name)
    return f"flambeau::{name}" if known is None else f"aten::{known}"


def called_name(name, args):
    """What PyTorch's profiler calls a call of our function `name`; None where it lists none."""
    if name in UNSHOWN:
        return None
    if name in ("__getitem__", "__setitem__"):
        part = args[1] if len(args) > 1 else None
        if name == "__setitem__":
            return "aten::index_put_" if _is_indexed(part) else "aten::copy_"
        return "aten::select" if isinstance(part, int) else "aten::index" if _is_indexed(part) else "aten::slice"
    return operator_name(name)


def _is_indexed(part):
    """Whether an index has positions or a mask in it, and so is no view."""
    return any(not isinstance(one, (int, slice, type(None), type(Ellipsis)))
               for one in (part if isinstance(part, tuple) else (part,)))

"""torchvision's compiled operators, as ours.

torchvision keeps them in two shared libraries beside its Python: `_C`, on boxes and regions, and `image`, on files of
pictures. Both are made for PyTorch's C++ and cannot be loaded here. So when torchvision asks `torch.ops.load_library`
for one of them, the operators below are defined in its stead, under the names and schemas that it looks up. They are
made of differentiable operations; torchvision's own formulas for gradients, where it registers them, are not needed.
"""
from . import boxes, deform, images, regions


def no_quantized_tensors(*args):
    raise NotImplementedError("qnms, qroi_align: Flambeau has no quantized tensors; dequantize() where they are made")


def no_cuda():
    """The version of CUDA that the operators were made with: none."""
    return -1


POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
CONVOLVED = ("Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
             "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, "
             "bool use_mask")
DECODED = "Tensor data, int mode, bool apply_exif_orientation=False"

# library → [(schema, function)]; see load_library in compat/_library/overloads.py
OPERATORS = {
    "_C": [
        ("torchvision::_cuda_version() -> int", no_cuda),
        ("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", boxes.nms),
        ("torchvision::box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor", boxes.box_iou_rotated),
        (f"torchvision::roi_align(Tensor input, Tensor rois, {POOLED}, int sampling_ratio, bool aligned) -> Tensor",
         regions.roi_align),
        (f"torchvision::_roi_align_backward(Tensor grad, Tensor rois, {POOLED}, {SIZES}, int sampling_ratio, "
         "bool aligned) -> Tensor", regions._roi_align_backward),
        (f"torchvision::roi_pool(Tensor input, Tensor rois, {POOLED}) -> (Tensor, Tensor)", regions.roi_pool),
        (f"torchvision::_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {POOLED}, {SIZES}) -> Tensor",
         regions._roi_pool_backward),
        (f"torchvision::ps_roi_align(Tensor input, Tensor rois, {POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
         regions.ps_roi_align),
        (f"torchvision::_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {POOLED}, "
         f"int sampling_ratio, {SIZES}) -> Tensor", regions._ps_roi_align_backward),
        (f"torchvision::ps_roi_pool(Tensor input, Tensor rois, {POOLED}) -> (Tensor, Tensor)", regions.ps_roi_pool),
        (f"torchvision::_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {POOLED}, {SIZES}) -> "
         "Tensor", regions._ps_roi_pool_backward),
        (f"torchvision::deform_conv2d({CONVOLVED}) -> Tensor", deform.deform_conv2d),
        (f"torchvision::_deform_conv2d_backward(Tensor grad, {CONVOLVED}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
         deform._deform_conv2d_backward),
        ("torchvision::qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor", no_quantized_tensors),
        ("torchvision::qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, "
         f"float rois_scale, int rois_zero_point, {POOLED}, int sampling_ratio, bool aligned) -> Tensor",
         no_quantized_tensors),
    ],
    "image": [
        ("image::read_file(str filename) -> Tensor", images.read_file),
        ("image::write_file(str filename, Tensor data) -> ()", images.write_file),
        (f"image::decode_image({DECODED}) -> Tensor", images.decode_image),
        (f"image::decode_png({DECODED}) -> Tensor", images.decode_png),
        (f"image::decode_jpeg({DECODED}) -> Tensor", images.decode_jpeg),
        ("image::decode_webp(Tensor encoded_data, int mode) -> Tensor", images.decode_webp),
        ("image::decode_gif(Tensor encoded_data) -> Tensor", images.decode_gif),
        ("image::encode_png(Tensor data, int compression_level) -> Tensor", images.encode_png),
        ("image::encode_jpeg(Tensor data, int quality) -> Tensor", images.encode_jpeg),
    ],
}


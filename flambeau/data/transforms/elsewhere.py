"""What torchvision's transforms have and these do not: whatever is made for its own kinds of tensors (`tv_tensors`).

Boxes, masks and key points are tensors there that know what they are, and every function has a form for each of them.
That is a package of its own, and it is there: torchvision itself runs on Flambeau. Here its names are refused, with
what to install.
"""
from ...base.names import near

INSTALL = "the package itself runs on Flambeau: flambeau provide-torch, then pip install torchvision==0.28.0"
FOR_BOXES, FOR_POINTS = "torchvision's bounding boxes", "torchvision's key points"
FOR_MASKS, FOR_TV_TENSORS = "torchvision's masks", "torchvision's own kinds of tensors"

# name → what it is for
TRANSFORMS_ELSEWHERE = {
    **dict.fromkeys(("ClampBoundingBoxes", "ConvertBoundingBoxFormat", "RandomIoUCrop", "SanitizeBoundingBoxes",
                     "SetClampingMode", "get_bounding_boxes"), FOR_BOXES),
    **dict.fromkeys(("ClampKeyPoints", "SanitizeKeyPoints", "get_keypoints"), FOR_POINTS)}
FUNCTIONS_ELSEWHERE = {
    "clamp_bounding_boxes": FOR_BOXES, "clamp_keypoints": FOR_POINTS, "convert_bounding_box_format": FOR_BOXES,
    "sanitize_bounding_boxes": FOR_BOXES, "sanitize_keypoints": FOR_POINTS, "register_kernel": FOR_TV_TENSORS,
    # the forms of functions of images
    **{f"{name}_{suffix}": meant
       for name in ("affine", "center_crop", "crop", "elastic", "get_size", "horizontal_flip", "pad", "perspective",
                    "resize", "resized_crop", "rotate", "vertical_flip")
       for suffix, meant in (("bounding_boxes", FOR_BOXES), ("keypoints", FOR_POINTS), ("mask", FOR_MASKS))}}


def not_here(owner, name, elsewhere, names):
    """The error of asking the module `owner` for `name`: what it is for, or which of `names` is near."""
    if name in elsewhere:
        words = f": it is for {elsewhere[name]}, and {INSTALL}"
    else:
        meant = None if name.startswith("_") else near(name, names)
        words = f"; did you mean {meant}?" if meant else ""
    return AttributeError(f"module {owner!r} has no attribute {name!r}{words}", name=name)

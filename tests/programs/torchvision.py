"""torchvision: transforms, datasets, models of all kinds, operators, pictures in files, feature extraction."""
import io
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn import functional as F
from torchvision import datasets, models, ops, transforms, tv_tensors, utils
from torchvision.transforms import v2

from tests.programs import array, fill, gradients

PACKAGES = ["torchvision", "pillow"]


def _picture(height=37, width=50, seed=0):
    """A picture with smooth colours, some noise and an edge."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    smooth = np.stack([128 + 100 * np.sin(x / 9 + seed), 255 * y / height, 128 + 100 * np.cos((x + y) / 7)], -1)
    smooth[height // 3:, width // 2:, seed % 3] /= 2
    return np.clip(smooth + rng.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)


def _pil(**size):
    return Image.fromarray(_picture(**size))


def _bytes(**size):
    return torch.from_numpy(_picture(**size).transpose(2, 0, 1).copy())


def _all(image):
    """Sums that every pixel has a part in, and some pixels."""
    held = torch.as_tensor(np.array(image)) if isinstance(image, Image.Image) else image
    weights = torch.arange(held.numel()).reshape(held.shape) % 251
    return {"sum": (held.double() * weights).sum().item(), "some": held}


def transforms_of_pictures():
    """The transforms of version 1 on pictures of Pillow's, with their random numbers."""
    training = transforms.Compose([
        transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.RandomRotation(20), transforms.RandomGrayscale(0.3), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), transforms.RandomErasing(0.9)])
    validation = transforms.Compose([
        transforms.Resize(32), transforms.CenterCrop(28), transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float32)])
    return {"training": [training(_pil(seed=n)) for n in range(4)], "validation": validation(_pil()),
            "five": torch.stack([transforms.ToTensor()(crop) for crop in transforms.FiveCrop(16)(_pil())]),
            "augmented": [_all(transforms.AutoAugment()(_pil(seed=n))) for n in range(3)],
            "rand": _all(transforms.RandAugment()(_pil())), "trivial": _all(transforms.TrivialAugmentWide()(_pil()))}


def transforms_of_tensors():
    """The transforms of version 2 on tensors of bytes and of floats: resizing to the last bit, warps, colours."""
    x, f = _bytes(), _bytes().float() / 255
    two = torch.stack([_bytes(seed=1), _bytes(seed=2)])
    found = {}
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        way = v2.InterpolationMode(mode)
        for size in ((19, 23), (61, 80)):
            found[f"{mode} {size[0]}"] = _all(v2.functional.resize(x, size, interpolation=way, antialias=True))
            found[f"{mode} {size[0]} floats"] = v2.functional.resize(f, size, interpolation=way, antialias=True)
    found["plain"] = _all(v2.functional.resize(x, (19, 23), antialias=False))
    found["batch"] = _all(v2.functional.resize(two, 20, antialias=True))
    for name, change in {
            "affine": v2.RandomAffine(15, (0.1, 0.1), (0.8, 1.2), 5), "perspective": v2.RandomPerspective(p=1.0),
            "blur": v2.GaussianBlur(5), "sharp": v2.RandomAdjustSharpness(2, p=1.0), "solar": v2.RandomSolarize(0.5,
                                                                                                                p=1.0),
            "posters": v2.RandomPosterize(3, p=1.0), "contrast": v2.RandomAutocontrast(p=1.0),
            "equal": v2.RandomEqualize(p=1.0), "jitter": v2.ColorJitter(0.3, 0.3, 0.3, 0.2),
            "elastic": v2.ElasticTransform(),
            "crop": v2.RandomResizedCrop(24, antialias=True), "turned": v2.RandomRotation(30, expand=True)}.items():
        seen = change(x)
        found[name] = {"shape": list(seen.shape), "mean": seen.double().mean().item()}
        found[f"{name} of floats"] = change(f).mean()
    return found


def boxes_and_masks():
    """Transforms of version 2 move boxes, masks and pictures together."""
    boxes = tv_tensors.BoundingBoxes([[3, 4, 20, 30], [10, 2, 45, 33]], format="XYXY", canvas_size=(37, 50))
    target = {"boxes": boxes, "masks": tv_tensors.Mask(_bytes()[:2] > 120), "labels": torch.tensor([1, 2])}
    change = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0), v2.RandomIoUCrop(), v2.Resize((30, 30),
                                                                                                   antialias=True),
                         v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True)])
    image, moved = change(_pil(), target)
    mixed, labels = v2.MixUp(num_classes=4)(torch.stack([_bytes(seed=n) / 255 for n in range(4)]), torch.arange(4))
    return {"image": image, "boxes": moved["boxes"], "masks": moved["masks"].sum((1, 2)), "labels": moved["labels"],
            "format": str(moved["boxes"].format), "canvas": list(moved["boxes"].canvas_size),
            "kind": type(image).__name__,
            "mixed": mixed, "mixed labels": labels,
            "converted": v2.functional.convert_bounding_box_format(boxes,
                                                                   new_format=tv_tensors.BoundingBoxFormat.CXCYWH)}


def data():
    """FakeData and an ImageFolder on disk, through a DataLoader."""
    for kind in ("cats", "dogs"):
        Path("pets", kind).mkdir(parents=True, exist_ok=True)
        for n in range(3):
            _pil(seed=n).save(Path("pets", kind, f"{n}.png"))
    ready = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])
    pets = datasets.ImageFolder("pets", ready)
    loader = torch.utils.data.DataLoader(pets, batch_size=4, shuffle=True)
    fake = datasets.FakeData(6, (3, 8, 8), 3, transforms.ToTensor())
    return {"classes": pets.classes, "batches": [[x.mean(), y.tolist()] for x, y in loader],
            "fake": [x for x, _ in fake][5], "fake labels": [int(y) for _, y in fake]}


def files():
    """Pictures are encoded, written, read and decoded."""
    from torchvision.io import (
        ImageReadMode,
        decode_gif,
        decode_image,
        decode_jpeg,
        decode_png,
        encode_jpeg,
        encode_png,
        read_file,
        read_image,
        write_file,
        write_jpeg,
        write_png,
    )
    x = _bytes()
    write_png(x, "x.png")
    write_jpeg(x, "x.jpg", quality=90)
    write_file("copy.png", encode_png(x, compression_level=9))
    held = {"gif": io.BytesIO(), "palette": io.BytesIO(), "alpha": io.BytesIO()}
    _pil().quantize(16).save(held["gif"], "gif", save_all=True, append_images=[_pil(seed=1).quantize(16)])
    _pil().quantize(16).save(held["palette"], "png")
    Image.fromarray(np.dstack([_picture(), _picture()[:, :, :1]])).save(held["alpha"], "png")
    data = {name: torch.frombuffer(bytearray(f.getvalue()), dtype=torch.uint8) for name, f in held.items()}
    return {"png": _all(read_image("x.png")), "same": torch.equal(read_image("copy.png"), x),
            "gray": _all(read_image("x.png", ImageReadMode.GRAY)), "jpeg": _all(decode_jpeg(read_file("x.jpg"))),
            "gray jpeg": _all(decode_image(read_file("x.jpg"), "GRAY")), "again": _all(decode_jpeg(encode_jpeg(x, 40))),
            "gif": _all(decode_gif(data["gif"])),
            "palette": _all(decode_png(data["palette"], "RGB")), "alpha": _all(decode_png(data["alpha"])),
            "no alpha": _all(decode_image(data["alpha"], ImageReadMode.RGB)),
            "with alpha": _all(decode_image(data["alpha"], ImageReadMode.GRAY_ALPHA))}


def drawing():
    """Grids, boxes, masks, key points and flows as pictures."""
    x = torch.stack([_bytes(seed=n) for n in range(5)])
    boxes = torch.tensor([[3, 4, 20, 30], [10, 2, 45, 33]])
    utils.save_image(x / 255, "grid.png", nrow=3)
    points = torch.tensor([[[5.0, 6.0], [20.0, 21.0]]])
    return {"grid": _all(utils.make_grid(x, nrow=2)), "scaled": utils.make_grid(x.float(), normalize=True,
                                                                                pad_value=0.5),
            "saved": _all(Image.open("grid.png")),
            "boxes": _all(utils.draw_bounding_boxes(x[0], boxes, colors=["red", "#00ff00"], width=2)),
            "masks": _all(utils.draw_segmentation_masks(x[0], x[0] > 150, alpha=0.6, colors=["red", "blue", "green"])),
            "points": _all(utils.draw_keypoints(x[0], points, radius=2)),
            "flow": _all(utils.flow_to_image(array(2, 10, 12)))}


# --- models ---


def _classified(model, size=64):
    """What a model gives, and how it is trained: in double precision, since gradients of deep nets magnify rounding."""
    fill(model)
    x = array(2, 3, size, size)
    model.eval()
    with torch.no_grad():
        seen = model(x)
    model.double().train()
    loss = F.cross_entropy(model(x.double()), torch.tensor([1, 2]))
    loss.backward()
    norms = [g for g in gradients(model).values() if g is not None]
    return {"logits": seen, "loss": loss, "gradients": [norms[0], norms[len(norms) // 2], norms[-1]],
            "count": len(norms)}


def _small(build, **options):
    return _classified(build(weights=None, num_classes=7, **options))


def residual_nets():
    """resnet18, and resnext blocks with dilations."""
    grouped = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=7, groups=4, width_per_group=8,
                            replace_stride_with_dilation=[False, True, True])
    return {"resnet18": _small(models.resnet18), "grouped": _classified(grouped)}


def small_nets():
    """mobilenet_v3_small, shufflenet, squeezenet, mnasnet, efficientnet."""
    return {build.__name__: _small(build) for build in (models.mobilenet_v3_small, models.shufflenet_v2_x0_5,
                                                        models.mnasnet0_5, models.regnet_x_400mf)}


def dense_nets():
    """densenet121."""
    return {"densenet121": _small(models.densenet121)}


def transformers():
    """A vision transformer, swin transformers of both versions and a convnext, small ones."""
    vit = models.VisionTransformer(64, 16, 2, 4, 48, 96, num_classes=7)
    swin = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=7)
    second = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=7,
                                    block=models.swin_transformer.SwinTransformerBlockV2,
                                    downsample_layer=models.swin_transformer.PatchMergingV2)
    block = models.convnext.CNBlockConfig
    convnext = models.ConvNeXt([block(16, 32, 1), block(32, 48, 2), block(48, None, 1)], num_classes=7)
    return {"vit": _classified(vit), "swin": _classified(swin), "swin v2": _classified(second),
            "convnext": _classified(convnext)}


def _scene():
    images = [array(3, 64, 80, seed=1, scale=0.3).double() + 0.5, array(3, 72, 64, seed=2, scale=0.3).double() + 0.5]
    targets = [{"boxes": torch.tensor([[5.0, 6, 40, 50], [20, 10, 70, 60]]).double(), "labels": torch.tensor([1, 2])},
               {"boxes": torch.tensor([[10.0, 20, 50, 60]]).double(), "labels": torch.tensor([3])}]
    for image, target in zip(images, targets):
        target["masks"] = torch.zeros(len(target["boxes"]), *image.shape[1:], dtype=torch.uint8)
        for mask, box in zip(target["masks"], target["boxes"].int().tolist()):
            mask[box[1]:box[3], box[0]:box[2]] = 1
    return images, targets


def _detected(model):
    """Losses and gradients of training, in double precision, and what is found."""
    fill(model).double().train()
    images, targets = _scene()
    losses = model(images, targets)
    sum(losses.values()).backward()
    norms = [g for g in gradients(model).values() if g is not None]
    model.eval()
    with torch.no_grad():
        found = model(images)
    return {"losses": losses, "gradients": [norms[0], norms[len(norms) // 2], norms[-1]],
            "found": [len(one["boxes"]) for one in found], "best": [one["scores"][:3] for one in found],
            "boxes": [one["boxes"][:2] for one in found]}


def regions_with_boxes():
    """Faster R-CNN on a mobilenet: proposals, roi_align, losses, what is found."""
    return _detected(models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=64, max_size=96, rpn_score_thresh=0.0,
        box_score_thresh=0.0, box_detections_per_img=10))


def regions_with_masks():
    """Mask R-CNN on a resnet18 with a pyramid of features."""
    backbone = models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    return _detected(models.detection.MaskRCNN(backbone, num_classes=5, min_size=64, max_size=96,
                                               box_detections_per_img=6))


def one_stage():
    """RetinaNet and SSDlite."""
    backbone = models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    retina = models.detection.RetinaNet(backbone, num_classes=4, min_size=64, max_size=96, detections_per_img=8)
    lite = models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4,
                                                          detections_per_img=8)
    return {"retinanet": _detected(retina), "ssdlite": _detected(lite)}


def segmentation():
    """DeepLab and LR-ASPP on mobilenets."""
    found = {}
    for build in (models.segmentation.deeplabv3_mobilenet_v3_large, models.segmentation.lraspp_mobilenet_v3_large):
        model = fill(build(weights=None, weights_backbone=None, num_classes=4)).double().train()
        out = model(array(2, 3, 64, 64).double())["out"]
        loss = F.cross_entropy(out, torch.arange(2 * 64 * 64).reshape(2, 64, 64) % 4)
        loss.backward()
        found[build.__name__] = {"out": out, "loss": loss}
    return found


# --- operators ---


def _boxes(count, seed=0):
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 40, (count, 2)), rng.uniform(2, 20, (count, 2))
    return torch.from_numpy(np.concatenate([corner, corner + size], 1).astype(np.float32))


def box_operators():
    """IoU in all its forms, suppression, clipping, losses on boxes."""
    a, b, scores = _boxes(60), _boxes(5, 1), array(60, seed=3)
    turned = torch.cat([ops.box_convert(b, "xyxy", "cxcywh"), torch.tensor([[0.0], [30], [45], [100], [-20]])], 1)
    return {"iou": ops.box_iou(a[:5], b), "generalized": ops.generalized_box_iou(a[:5], b),
            "complete": ops.complete_box_iou(a[:5], b), "turned": ops.box_iou(turned, turned, fmt="cxcywhr"),
            "nms": [ops.nms(a, scores, limit) for limit in (0.1, 0.3, 0.7)],
            "batched": ops.batched_nms(a, scores, torch.arange(60) % 3, 0.3),
            "clipped": ops.clip_boxes_to_image(a[:4], (30, 30)), "small": ops.remove_small_boxes(a, 6.0),
            "of masks": ops.masks_to_boxes(_bytes() > 200),
            "losses": [ops.generalized_box_iou_loss(a[:5], b, "sum"), ops.distance_box_iou_loss(a[:5], b, "sum"),
                       ops.sigmoid_focal_loss(array(6, 3), (array(6, 3, seed=1) > 0).float(), reduction="mean")]}


def region_operators():
    """roi_align, roi_pool and their position-sensitive forms, with gradients; deformable convolutions."""
    rois = torch.cat([(torch.arange(7) % 2).float().unsqueeze(1), _boxes(7)], 1)
    found = {}
    for name, call in {
            "align": lambda x: ops.roi_align(x, rois, 3, 0.5, 2, True), "align by size": lambda x: ops.roi_align(x,
                                                                                                                 rois,
                                                                                                                 (2,
                                                                                                                  4),
                                                                                                                  0.4),
            "pool": lambda x: ops.roi_pool(x, rois, 3, 0.5), "sensitive align": lambda x: ops.ps_roi_align(x, rois, 3,
                                                                                                           0.5, 2),
            "sensitive pool": lambda x: ops.ps_roi_pool(x, rois, 3, 0.5)}.items():
        x = array(2, 18, 30, 28, seed=2).requires_grad_()
        out = call(x)
        (out * array(*out.shape, seed=4)).sum().backward()
        found[name], found[f"{name} backward"] = out, x.grad
    for groups in (1, 2):
        layer = fill(ops.DeformConv2d(4, 6, 3, stride=2, padding=1, groups=groups))
        x, offset = array(2, 4, 9, 11).requires_grad_(), array(2, 36, 5, 6, seed=5).requires_grad_()
        mask = array(2, 18, 5, 6, seed=6).sigmoid().requires_grad_()
        out = layer(x, offset, mask)
        out.square().sum().backward()
        found[f"deformed by {groups}"] = {"out": out, "x": x.grad, "offset": offset.grad, "mask": mask.grad,
                                          **gradients(layer)}
    return found


def layers():
    """Pyramids of features, pooling from their levels, drop_block, stochastic depth, frozen norms, excitation."""
    from collections import OrderedDict
    levels = OrderedDict([("0", array(1, 4, 16, 16)), ("1", array(1, 6, 8, 8, seed=1)), ("2", array(1, 8, 4, 4,
                                                                                                    seed=2))])
    pyramid = fill(ops.FeaturePyramidNetwork([4, 6, 8], 5))(levels)
    pool = ops.MultiScaleRoIAlign(["0", "1", "2"], 3, 2)
    return {"pyramid": dict(pyramid), "pooled": pool(pyramid, [_boxes(6)], [(64, 64)]),
            "dropped": ops.DropBlock2d(0.3, 3)(array(2, 3, 12, 12)), "depth": ops.stochastic_depth(array(4, 3), 0.5,
                                                                                                   "row"),
            "frozen": ops.FrozenBatchNorm2d(4)(levels["0"]), "squeezed": fill(ops.SqueezeExcitation(4, 2))(levels["0"]),
            "mlp": fill(ops.MLP(4, [8, 3], norm_layer=torch.nn.LayerNorm))(array(5, 4))}


def feature_extraction():
    """Nodes inside a traced resnet."""
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
    net = fill(models.resnet18(weights=None, num_classes=5)).eval()
    names, _ = get_graph_node_names(net)
    taken = create_feature_extractor(net, {"layer1": "early", "layer3.0.relu": "late", "flatten": "flat"})
    with torch.no_grad():
        out = taken(array(1, 3, 64, 64))
    return {"names": names[:6] + names[-4:], "count": len(names), **out}


def weights_and_versions():
    """What weights say of themselves, without their files."""
    held = models.ResNet18_Weights.DEFAULT
    return {"name": str(held), "classes": held.meta["categories"][:3], "ready": held.transforms()(_pil()),
            "models": len(models.list_models(torchvision.models)) > 50,
            "by name": type(models.get_model("alexnet")).__name__}

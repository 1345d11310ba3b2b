"""timm: architectures of all kinds, features, optimizers, schedulers, averaging, mixup, data configurations."""
import numpy as np
import timm
import torch
from PIL import Image
from torch.nn import functional as F

from tests.programs import array, fill, gradients

PACKAGES = ["timm"]


def _run(name, size=64, **options):
    """The logits of a model in use; in double precision, the loss of one in training, and some of its gradients."""
    model = fill(timm.create_model(name, pretrained=False, num_classes=6, **options))
    x = array(2, 3, size, size)
    model.eval()
    with torch.no_grad():
        seen = model(x)
    model.double().train()                # gradients of deep nets magnify rounding
    loss = F.cross_entropy(model(x.double()), torch.tensor([1, 2]))
    loss.backward()
    norms = [g for g in gradients(model).values() if g is not None]
    return {"logits": seen, "loss": loss, "gradients": [norms[0], norms[len(norms) // 2], norms[-1]],
            "parameters": sum(p.numel() for p in model.parameters())}


def convolutional():
    """resnet10t, mobilenetv3, efficientnet, regnetz, and small nets of other kinds."""
    return {name: _run(name) for name in ("resnet10t", "mobilenetv3_small_050", "test_efficientnet", "test_resnet",
                                          "test_byobnet", "regnetz_005")}


def modern():
    """convnext, mixer, poolformer, levit: nets between convolutions and attention."""
    return {"convnext": _run("convnext_atto"), "test_convnext": _run("test_convnext"),
            "mixer": _run("mixer_s32_224", img_size=64),
            "poolformer": _run("poolformerv2_s12"),
            "levit": _run("levit_128s", 224)}


def attention():
    """Vision transformers: vit, deit, swin, eva, beit, cait."""
    small = {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 4}
    return {"vit": _run("vit_tiny_patch16_224", **small), "test_vit": _run("test_vit", 64, img_size=64),
            "deit": _run("deit_tiny_distilled_patch16_224", **small),
            "swin": _run("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24, depths=(1, 1),
                         num_heads=(2, 4)),
            "eva": _run("eva02_tiny_patch14_224", 56, img_size=56, embed_dim=48, depth=2, num_heads=4),
            "beit": _run("beit_base_patch16_224", **small), "cait": _run("cait_xxs24_224", **small)}


def features():
    """features_only, forward_features, intermediate layers, another head."""
    model = fill(timm.create_model("resnet10t", features_only=True, out_indices=(1, 3))).eval()
    vit = fill(timm.create_model("vit_tiny_patch16_224", img_size=64, embed_dim=48, depth=3, num_heads=4)).eval()
    x = array(1, 3, 64, 64)
    with torch.no_grad():
        maps, inner = model(x), vit.forward_intermediates(x, indices=2, intermediates_only=True)
        before = vit.forward_features(x)
        vit.reset_classifier(3)
        head = fill(vit)(x)
    return {"maps": maps, "channels": model.feature_info.channels(), "reduction": model.feature_info.reduction(),
            "inner": inner, "before": before, "head": head, "pooled": vit.forward_head(before, pre_logits=True),
            "names": timm.list_models("resnet1*t*")[:3], "is a model": timm.is_model("vit_base_patch16_224")}


def optimizers():
    """The optimizers that timm has of its own."""
    from timm.optim import create_optimizer_v2
    found = {}
    for name in ("sgd", "adamw", "lamb", "lars", "lion", "madgrad", "nadamw", "rmsproptf", "adafactor", "adopt", "adan",
                 "radam", "lookahead_adam"):
        net = fill(torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)))
        optimizer = create_optimizer_v2(net, name, lr=0.01, weight_decay=0.05)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(array(6, 5)), torch.arange(6) % 3)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[name] = losses
    return found


def schedules():
    """Cosine, step, polynomial and plateau schedules, with warmup and noise."""
    from timm.scheduler import create_scheduler_v2
    found = {}
    for name in ("cosine", "tanh", "step", "multistep", "poly", "plateau"):
        optimizer = torch.optim.SGD([torch.nn.Parameter(array(3))], lr=0.1)
        schedule, epochs = create_scheduler_v2(optimizer, name, num_epochs=12, warmup_epochs=3, decay_epochs=4,
                                               decay_milestones=(5, 8), patience_epochs=1, min_lr=1e-4)
        rates = []
        for epoch in range(12):
            schedule.step(epoch + 1, metric=1.0)
            rates.append(optimizer.param_groups[0]["lr"])
        found[name] = {"rates": rates, "epochs": epochs}
    return found


def training():
    """A training loop: mixup, a soft loss, clipping, an average of the weights, rates by layers."""
    from timm.data import Mixup
    from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
    from timm.optim import param_groups_layer_decay
    from timm.utils import AverageMeter, ModelEmaV3, accuracy, dispatch_clip_grad
    model = fill(timm.create_model("test_vit", img_size=64, num_classes=4))
    groups = param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.7)
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    average, mix, meter = ModelEmaV3(model, decay=0.9), Mixup(0.8, 1.0, num_classes=4), AverageMeter()
    losses = []
    for step in range(4):
        x, y = mix(array(4, 3, 64, 64, seed=step), torch.arange(4))
        loss = SoftTargetCrossEntropy()(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step)
        meter.update(loss.item(), 4)
        losses.append(loss.item())
    with torch.no_grad():
        out = average.module.eval()(array(4, 3, 64, 64))
    return {"losses": losses, "mean": meter.avg, "average": out, "groups": len(groups),
            "scales": sorted({round(g["lr_scale"], 6) for g in groups}),
            "accuracy": [a.item() for a in accuracy(out, torch.arange(4), topk=(1, 2))],
            "smoothed": LabelSmoothingCrossEntropy(0.1)(out, torch.arange(4))}


def data():
    """Transforms from a model's configuration, for training and for use."""
    from timm.data import create_transform, resolve_data_config
    model = timm.create_model("resnet10t")
    config = resolve_data_config({}, model=model)
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (70, 90, 3), dtype=np.uint8))
    train = create_transform(48, is_training=True, auto_augment="rand-m9-mstd0.5", re_prob=0.5)
    return {"config": {name: list(v) if isinstance(v, tuple) else v for name, v in config.items()},
            "used": create_transform(**config)(image), "trained": [train(image) for _ in range(3)]}


def layers():
    """Layers of timm's own."""
    from timm.layers import (
        AttentionPool2d,
        BlurPool2d,
        DropPath,
        EcaModule,
        LayerNorm2d,
        PatchEmbed,
        RmsNorm,
        RotaryEmbeddingCat,
        SelectAdaptivePool2d,
        SplitAttn,
        resample_abs_pos_embed,
    )
    x = array(2, 8, 12, 12)
    rope = RotaryEmbeddingCat(16, in_pixels=False, feat_shape=[3, 3])
    return {"blur": BlurPool2d(8)(x), "drop": DropPath(0.5)(x), "eca": fill(EcaModule(8))(x),
            "norm": fill(LayerNorm2d(8))(x), "rms": fill(RmsNorm(12))(x), "rope": rope.get_embed(),
            "patches": fill(PatchEmbed(12, 4, 8, 16))(x), "pool": SelectAdaptivePool2d(pool_type="catavgmax")(x),
            "split": fill(SplitAttn(8)).eval()(x), "attention pool": fill(AttentionPool2d(8, 12, 16, num_heads=4))(x),
            "resampled": resample_abs_pos_embed(array(1, 17, 8), [6, 6])}

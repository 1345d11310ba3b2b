"""segmentation_models_pytorch: nets that label pixels, their losses and scores, from fresh weights on."""
import segmentation_models_pytorch as smp
import torch

from tests.programs import array, fill, tokens, tolerance

PACKAGES = ["segmentation-models-pytorch"]


def started():
    """The weights that nets begin with are PyTorch's."""
    torch.manual_seed(1)
    net = smp.Unet("resnet18", encoder_weights=None, classes=2)
    return {name: [p.double().sum(), p.double().norm()] for name, p in list(net.named_parameters())[::6]}


@tolerance(1e-4, "batch norms of few numbers after each other carry rounding on")
def trained():
    """Nets of several kinds learn two classes by the loss of Dice."""
    x, y, found = array(2, 3, 64, 64), tokens(2, 1, 64, 64, below=2).float(), {}
    loss_of = smp.losses.DiceLoss("binary")
    for kind in (smp.Unet, smp.FPN, smp.Linknet):
        net = fill(kind("resnet18", encoder_weights=None, classes=1))
        sgd, losses = torch.optim.SGD(net.parameters(), 1e-3), []
        for _ in range(2):
            loss = loss_of(net(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss)
        found[kind.__name__] = {"losses": losses, "out": net.eval()(x)}
    return found


def scored():
    """The losses with their gradients, and scores from true and false positives."""
    found = {}
    for name in ("DiceLoss", "JaccardLoss", "FocalLoss", "LovaszLoss", "TverskyLoss"):
        x = array(2, 3, 8, 8).requires_grad_()
        loss = getattr(smp.losses, name)("multiclass")(x, tokens(2, 8, 8, below=3))
        loss.backward()
        found[name] = {"loss": loss, "gradient": x.grad}
    counts = smp.metrics.get_stats(tokens(2, 8, 8, below=3), tokens(2, 8, 8, below=3, seed=1), mode="multiclass",
                                   num_classes=3)
    return found | {name: getattr(smp.metrics, name)(*counts, reduction="micro") for name in ("iou_score", "f1_score",
                                                                                             "accuracy", "recall")}

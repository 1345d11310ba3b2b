"""ultralytics: YOLO: its loss trained, boxes found, its own checkpoints, its trainer on pictures of a folder."""
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from ultralytics import YOLO
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import DEFAULT_CFG_DICT
from ultralytics.utils.nms import non_max_suppression

from tests.programs import array, fill, gradients, tolerance

PACKAGES = ["ultralytics"]
NET = {"nc": 3, "depth_multiple": 1.0, "width_multiple": 1.0, "scale": "",
       "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [16, 3, 2]], [-1, 1, "C2f", [16, True]],
                    [-1, 1, "Conv", [32, 3, 2]], [-1, 1, "C3k2", [32, True]], [-1, 1, "Conv", [32, 3, 2]],
                    [-1, 1, "SPPF", [32, 5]]],
       "head": [[-1, 1, "nn.Upsample", [None, 2, "nearest"]], [[-1, 4], 1, "Concat", [1]], [-1, 1, "C2f", [32]],
                [[9, 6], 1, "Detect", ["nc"]]]}


def _net():
    net = fill(DetectionModel(dict(NET), nc=3, verbose=False))
    net.args = get_cfg(DEFAULT_CFG_DICT)
    return net


def _batch():
    return {"img": array(2, 3, 64, 64).sigmoid(), "batch_idx": torch.tensor([0.0, 0, 1]),
            "cls": torch.tensor([[0.0], [2], [1]]),
            "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.3], [0.3, 0.6, 0.2, 0.2], [0.6, 0.4, 0.5, 0.5]])}


@tolerance(1e-4, "batch norms after each other carry rounding on")
def trained():
    """The loss of boxes, classes and distances over some steps, and the first step's gradients."""
    net = _net().train()
    sgd, losses, found = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9), [], {}
    for step in range(3):
        loss, items = net(_batch())
        sgd.zero_grad()
        loss.sum().backward()
        if not step:
            found = gradients(net)
        sgd.step()
        losses.append(items)
    return {"losses": losses, "gradients": dict(list(found.items())[::9])}


@tolerance(1e-4, "batch norms after each other carry rounding on")
def found():
    """Boxes of a picture, those that overlap dropped; with batch norms folded into convolutions."""
    net = _net().eval()
    with torch.no_grad():
        raw = net(_batch()["img"])[0]
        folded = net.fuse(verbose=False)(_batch()["img"])[0]
        boxes = non_max_suppression(raw, 0.01, 0.5, max_det=8)
    return {"raw": raw, "folded": folded, "counts": [len(each) for each in boxes], "scores": boxes[0][:, 4]}


def kept():
    """A checkpoint as ultralytics writes it, with the whole model in it, loaded by its own YOLO."""
    net = _net()
    torch.save({"model": net.half(), "ema": None, "epoch": 1, "train_args": dict(DEFAULT_CFG_DICT)}, "own.pt")
    yolo = YOLO("own.pt")
    raw = yolo.model.float().eval()(_batch()["img"])[0]
    result = yolo.predict(np.full((64, 64, 3), 114, np.uint8), imgsz=64, conf=0.001, verbose=False, max_det=5)[0]
    return {"names": len(yolo.names), "raw": raw, "boxes": list(result.boxes.xywhn.shape),
            "class": type(yolo.model).__name__}


@tolerance(1e-3, "each epoch carries rounding on, and what is reported is rounded to five digits")
def by_trainer():
    """An epoch of its trainer over pictures in a folder: what it reports, and its last checkpoint."""
    import yaml
    for part in ("train", "val"):
        for folder in ("images", "labels"):
            Path("data", folder, part).mkdir(parents=True)
        for n in range(4):
            pixels = (array(64, 64, 3, seed=n).sigmoid().numpy() * 255).astype(np.uint8)
            Image.fromarray(pixels).save(f"data/images/{part}/{n}.png")
            Path(f"data/labels/{part}/{n}.txt").write_text(f"{n % 3} 0.5 0.5 0.4 0.3\n")
    Path("data.yaml").write_text(yaml.dump({"path": str(Path("data").absolute()), "train": "images/train",
                                            "val": "images/val", "names": {0: "a", 1: "b", 2: "c"}}))
    Path("net.yaml").write_text(yaml.dump(NET))
    yolo = YOLO("net.yaml", task="detect", verbose=False)
    yolo.train(data="data.yaml", epochs=1, imgsz=64, batch=2, workers=0, device="cpu", plots=False, verbose=False,
               optimizer="SGD", amp=False, project=str(Path("runs").absolute()), seed=0, mosaic=0.0)
    (report,) = Path("runs").rglob("results.csv")
    header, row = report.read_text().splitlines()
    told = {name.strip(): float(value) for name, value in zip(header.split(","), row.split(","))}
    return {name: held for name, held in told.items() if "loss" in name or "lr" in name} | {
        "again": YOLO(next(Path("runs").rglob("last.pt"))).task}

"""How fast are images augmented, beside torchvision?

    python bench/images.py [--rounds 5] [--cpu] [word ...]

torchvision transforms the samples of a batch one by one, since a batch given to it shares one draw; Flambeau takes the
batch whole, with a draw for each sample, or the samples one by one as well. Draws differ, so what is compared before
anything is timed is what draws nothing; that the numbers agree on the same draws is what the tests of transforms in
tests/torch show. `--cpu` counts processor seconds, of workers too, instead of the clock's: for a machine that others
use. Words pick the rows that contain one of them.
"""
import argparse
import importlib
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import side
import torch

import flambeau
import flambeau.utils.data
from flambeau.data import transforms

BATCH, SIZE = 128, 256        # images, and pixels along their edges
FILES = 192                   # pictures of 500 x 375 on the disk
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
rng = np.random.default_rng(0)


def smooth_images(count, height, width):
    """Images with slopes and some noise, as photographs have them, in bytes."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (9 + 3 * i % 31) + c) + np.cos(y / (7 + 5 * i % 23)) for i in range(count)
                      for c in range(3)]).reshape(count, 3, height, width)
    return (128 + 50 * waves + rng.normal(0, 6, waves.shape)).clip(0, 255).astype(np.uint8)


IMAGES = smooth_images(BATCH, SIZE, SIZE)


def torchvision_transforms():
    """torchvision's, whose compiled half may be for another build of PyTorch; transforms do without it."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision_transforms.kept = operators
    return importlib.import_module("torchvision.transforms.v2")


# --- tensors ---

def training(t, lib):
    return t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ColorJitter(0.4, 0.4, 0.4, 0.1),
                      t.ToDtype(lib.float32, scale=True), t.Normalize(MEAN, STD)])


def without_hue(t, lib):
    return t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ColorJitter(0.4, 0.4, 0.4),
                      t.ToDtype(lib.float32, scale=True), t.Normalize(MEAN, STD)])


def small(t, lib):
    return t.Compose([t.RandomCrop(32, padding=4), t.RandomHorizontalFlip(), t.ToDtype(lib.float32, scale=True),
                      t.Normalize(MEAN, STD)])


def affine(t, lib):
    return t.RandomAffine(15, (0.1, 0.1), (0.8, 1.2), 5, interpolation="bilinear")


def blurred(t, lib):
    return t.GaussianBlur(9)


def rand_augment(t, lib):
    return t.RandAugment()


def settled(t, lib, images):
    """What draws nothing: the same in both."""
    chain = t.Compose([t.Resize(224), t.CenterCrop(200), t.ToDtype(lib.float32, scale=True), t.Normalize(MEAN, STD)])
    return chain(lib.tensor(images[:4]))


def tensors(what, make, target, single=None, images=None):
    """Rows of one transform: a batch at once and one by one, against torchvision's one by one."""
    real = torchvision_transforms()
    given = IMAGES if images is None else images
    theirs, ours = torch.tensor(given), flambeau.tensor(given)
    of_real, of_ours, finish = make(real, torch), make(transforms, flambeau), side.synchronizer()

    def batched():
        made = of_ours(ours)
        finish()
        return made

    def one_by_one():
        made = []
        for image in ours:
            made.append(of_ours(image))
            finish()
        return flambeau.stack(made)

    def check(names):
        return {side.OURS: settled(transforms, flambeau, given), side.EAGER: settled(real, torch, given)}

    eager = {side.EAGER: lambda: lambda: torch.stack([of_real(image) for image in theirs])}
    yield side.Row(f"{what}, a batch of {len(given)} at once", {side.OURS: lambda: batched, **eager},
                   [side.Claim(target)], check)
    if single is not None:
        yield side.Row(f"{what}, one by one", {side.OURS: lambda: one_by_one, **eager}, [side.Claim(single)], check)


# --- files ---

def files_on_disk():
    """A folder of pictures, and their paths."""
    from PIL import Image
    folder = tempfile.TemporaryDirectory()
    paths = [str(Path(folder.name, f"{i}.jpg")) for i in range(FILES)]
    for path, array in zip(paths, smooth_images(FILES, 375, 500)):
        Image.fromarray(array.transpose(1, 2, 0).copy()).save(path, quality=90)
    return folder, paths


def pictures_of(lib, t, folder, paths):
    """A dataset of the files, each decoded by Pillow and transformed."""
    from PIL import Image
    chain = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.PILToTensor(),
                       t.ToDtype(lib.float32, scale=True), t.Normalize(MEAN, STD)])

    class Pictures(lib.utils.data.Dataset):
        kept = folder

        def __len__(self):
            return len(paths)

        def __getitem__(self, index):
            return chain(Image.open(paths[index]).convert("RGB"))
    return Pictures()


def first_epoch(name, workers=2):
    """Processor seconds of the first epoch in this process, which has transformed nothing yet."""
    lib, t = (flambeau, transforms) if name == side.OURS else (torch, torchvision_transforms())
    data = pictures_of(lib, t, *files_on_disk())
    start = processor_seconds()
    for _ in lib.utils.data.DataLoader(data, 32, num_workers=workers):
        pass
    return processor_seconds() - start


def first_epochs(what, target, rounds):
    """The least of several first epochs, each in a process of its own, in turns."""
    best = dict.fromkeys((side.OURS, side.EAGER), float("inf"))
    for _ in range(rounds):
        for name in best:
            done = subprocess.run([sys.executable, __file__, "--first-epoch", name], capture_output=True, text=True,
                                  check=True)
            best[name] = min(best[name], float(done.stdout.split()[-1]))
    told(what, best[side.OURS], best[side.EAGER], target)


def decoded(what, target, workers=2):
    """Files decoded by Pillow, transformed and collated by workers."""
    from PIL import Image
    folder, paths = files_on_disk()
    real = torchvision_transforms()

    def loader(lib, t):
        data = pictures_of(lib, t, folder, paths)
        for _ in range(3):            # who forks has made a batch before: workers begin with its plans
            np.asarray(lib.utils.data.default_collate([data[i] for i in range(32)]))
        return lib.utils.data.DataLoader(data, 32, num_workers=workers)

    def batches(lib, t):
        """The workers cut and collate bytes; what else there is, the batch gets at once."""
        cut = t.Compose([t.RandomResizedCrop(224), t.PILToTensor()])
        rest = t.Compose([t.RandomHorizontalFlip(), t.ToDtype(lib.float32, scale=True), t.Normalize(MEAN, STD)])

        class Pictures(lib.utils.data.Dataset):
            def __len__(self):
                return FILES

            def __getitem__(self, index):
                return cut(Image.open(paths[index]).convert("RGB"))
        made = lib.utils.data.DataLoader(Pictures(), 32, num_workers=workers)
        return lambda: [rest(batch) for batch in made]

    def epoch(made, finish):
        def run():
            made_batches = list(made)
            finish()
            return made_batches
        return run

    def check(names):
        return {side.OURS: settled(transforms, flambeau, IMAGES), side.EAGER: settled(real, torch, IMAGES)}

    theirs = {side.EAGER: lambda: epoch(loader(torch, real), lambda: None)}
    finish = side.synchronizer()
    yield side.Row(what, {side.OURS: lambda: epoch(loader(flambeau, transforms), finish), **theirs},
                   [side.Claim(target)], check)

    def in_batches():
        run = batches(flambeau, transforms)

        def whole():
            made = run()
            finish()
            return made
        return whole
    yield side.Row(f"{what}, but crops by the batch", {side.OURS: in_batches, **theirs}, [side.Claim(target)], check)


CIFAR = smooth_images(512, 32, 32)
WORK = [
    ("crop, flip, jitter, normalise of 3 x 256 x 256", lambda what: tensors(what, training, 3, 1)),
    ("the same without hue", lambda what: tensors(what, without_hue, 3, 1)),
    ("crop with padding, flip, normalise of 3 x 32 x 32", lambda what: tensors(what, small, 3, None, CIFAR)),
    ("affine, bilinear, of 3 x 256 x 256", lambda what: tensors(what, affine, 1)),
    ("blur by 9 x 9 of 3 x 256 x 256", lambda what: tensors(what, blurred, 1)),
    ("RandAugment of 3 x 224 x 224", lambda what: tensors(what, rand_augment, 3, None, IMAGES[..., :224, :224].copy())),
    (f"{FILES} files decoded, transformed, collated, 2 workers", lambda what: decoded(what, 1)),
]


# --- processor time ---

def processor_seconds():
    """Of this process and of the workers that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def by_processor(row, rounds):
    """A line for each row: the least processor time of a call of each contender, in turns."""
    runs = {name: make() for name, make in row.runs.items()}
    for run in runs.values():
        for _ in range(3):
            run()
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = processor_seconds()
            run()
            best[name] = min(best[name], processor_seconds() - start)
    for claim in row.claims:
        told(row.work, best[claim.below], best[claim.above], claim.target)


def told(what, ours, theirs, target):
    print(f"{what:68} {side.clock(ours):>10} {side.clock(theirs):>10} {theirs / ours:7.2f} {target:5}  "
          f"{'reached' if theirs >= target * ours else 'SHORT'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=side.ROUNDS)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--first-epoch", choices=[side.OURS, side.EAGER], help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    side.two_cores()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    if asked.first_epoch:
        print(first_epoch(asked.first_epoch))
        return
    shown = None if asked.cpu else side.Table()
    for what, rows in WORK:
        if asked.words and not any(word in what for word in asked.words):
            continue
        for row in rows(what):
            by_processor(row, asked.rounds) if asked.cpu else shown.race(row, rounds=asked.rounds)
    if shown is not None:
        shown.close()
    what = "the first epoch of a process that decodes, processor time"
    if not asked.words or any(word in what for word in asked.words):
        first_epochs(what, 1, asked.rounds)


if __name__ == "__main__":
    main()

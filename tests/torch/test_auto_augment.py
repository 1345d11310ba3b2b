"""AutoAugment, RandAugment, TrivialAugmentWide, AugMix, MixUp, CutMix beside torchvision's: tables, each operation,
whole augmentations on the same draws, and how often what is drawn."""
import numpy as np
import pytest

import flambeau
from flambeau.data import transforms
from flambeau.data.transforms import auto
from flambeau.utils.data.sample_random import SampleRandom, sample_keys
from tests.torch import real_torchvision

v2 = real_torchvision.transforms()
torch = pytest.importorskip("torch")
from PIL import Image

SPACES = {"AutoAugment": auto.AUTO_SPACE, "RandAugment": auto.RAND_SPACE, "TrivialAugmentWide": auto.TRIVIAL_SPACE,
          "AugMix": auto.ALL_MIX_SPACE}


def pictures(n=6, height=23, width=31, channels=3, seed=0):
    """Pictures with smooth parts, noise, an edge, and one of a single colour."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    made = np.stack([128 + 90 * np.sin((x * (i + 1) + y * c) / 9) + rng.normal(0, 9, (height, width))
                     for i in range(n) for c in range(channels)]).reshape(n, channels, height, width)
    made[0] = 77
    made[1, :, height // 2:] /= 3
    return made.clip(0, 255).astype(np.uint8)


def streams(n, seed=0):
    return SampleRandom(sample_keys(seed, 0, range(n)))


def real_operation(name, image, magnitude, interpolation="nearest", fill=None):
    augmentation = v2.RandAugment(interpolation=interpolation, fill=fill)
    return augmentation._apply_image_or_video_transform(image, name, magnitude, interpolation, augmentation._fill)


def same(ours, theirs, interpolation="nearest"):
    """Whether bytes are equal; between pixels, a sum that ends in a half may be rounded to either side."""
    if interpolation == "nearest":
        return (ours == theirs).all()
    return np.abs(ours.astype(int) - theirs).max() <= 1 and (ours == theirs).mean() > 0.99


# --- tables ---


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("bins, height, width", [(31, 224, 224), (10, 33, 97), (4, 1, 5)])
def test_magnitudes(name, bins, height, width):
    real = getattr(v2, name)._AUGMENTATION_SPACE
    assert list(real) == list(SPACES[name])
    for operation, (magnitudes, signed) in real.items():
        ours, theirs = SPACES[name][operation], magnitudes(bins, height, width)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours.magnitudes(bins, height, width).tolist() == theirs.tolist() and ours.signed == signed, operation


@pytest.mark.parametrize("policy", list(transforms.AutoAugmentPolicy))
def test_policies(policy):
    real = v2.AutoAugment(v2.AutoAugmentPolicy(policy.value))._policies
    assert auto.policies_of(policy) == [tuple(pair) for pair in real]


def test_some_operations_of_augmix():
    assert list(auto.MIX_SPACE) == list(v2.AugMix._PARTIAL_AUGMENTATION_SPACE)


# --- operation by operation ---


def magnitudes_of(name):
    found = [held.magnitudes(8, 23, 31) for space in SPACES.values() for key, held in space.items()
             if key == name and held is not None]
    found = np.unique(np.concatenate(found)) if found else np.zeros(3)
    signed = any(space[name] is not None and space[name].signed for space in SPACES.values() if name in space)
    return np.concatenate([found, -found]) if signed else found


@pytest.mark.parametrize("interpolation, fill", [("nearest", None), ("bilinear", None), ("nearest", 77.0),
                                                 ("bilinear", (10.0, 20.0, 30.0))])
@pytest.mark.parametrize("name", auto.OPERATIONS)
def test_an_operation_on_bytes(name, interpolation, fill):
    magnitudes = magnitudes_of(name)
    n = len(magnitudes)
    batch = pictures(n)
    ours = auto.OPERATIONS[name](flambeau.from_numpy(batch), magnitudes, interpolation, fill).numpy()
    for i, magnitude in enumerate(magnitudes.tolist()):
        theirs = real_operation(name, torch.from_numpy(batch[i]), magnitude, interpolation, fill).numpy()
        assert same(ours[i], theirs, interpolation), f"{name} by {magnitude}"
        alone = auto.operated(auto.NUMBERS[name], flambeau.from_numpy(batch[i]), magnitude, interpolation, fill)
        assert (alone.numpy() == ours[i]).all()


@pytest.mark.parametrize("name", auto.OPERATIONS)
def test_an_operation_on_floats(name):
    magnitudes = magnitudes_of(name)
    batch = (pictures(len(magnitudes), channels=1 if name in ("Equalize", "Contrast") else 3) / 255).astype(np.float32)
    ours = auto.OPERATIONS[name](flambeau.from_numpy(batch), magnitudes, "nearest", None).numpy()
    for i, magnitude in enumerate(magnitudes.tolist()):
        theirs = real_operation(name, torch.from_numpy(batch[i]), magnitude).numpy()
        assert np.abs(ours[i] - theirs).max() < 2e-6, f"{name} by {magnitude}"


@pytest.mark.parametrize("name", auto.OPERATIONS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_an_operation_on_pictures_of_pillows(name, mode):
    picture = Image.fromarray(pictures()[3].transpose(1, 2, 0)).convert(mode)
    for magnitude in magnitudes_of(name).tolist():
        if name == "Posterize" and magnitude == 0:
            continue                                          # AugMix alone has it, which makes tensors of pictures
        ours = auto.operated(auto.NUMBERS[name], picture, magnitude, "nearest", None)
        theirs = real_operation(name, picture, magnitude)
        assert ours.mode == mode and (np.array(ours) == np.array(theirs)).all(), f"{name} by {magnitude}"


# --- whole augmentations on the same draws ---

NAMES = {number: name for name, number in auto.NUMBERS.items()}


@pytest.mark.parametrize("make", [
    lambda: transforms.RandAugment(), lambda: transforms.RandAugment(1, 20, interpolation="bilinear", fill=5),
    lambda: transforms.RandAugment(4, 28, fill=(3, 200, 100)),
    lambda: transforms.TrivialAugmentWide(), lambda: transforms.AutoAugment(),
    lambda: transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10),
    lambda: transforms.AutoAugment(transforms.AutoAugmentPolicy.SVHN),
])
def test_augmentations_on_the_same_draws(make):
    augment, batch = make(), pictures(40)
    images = flambeau.from_numpy(batch)
    drawn = augment.draw(len(batch), [images], streams(len(batch)))
    ours = augment.transform(images, drawn).numpy()
    for i in range(len(batch)):
        theirs, picture = torch.from_numpy(batch[i]), Image.fromarray(batch[i].transpose(1, 2, 0))
        for number, magnitude in zip(drawn["operation"][i].tolist(), drawn["magnitude"][i].tolist()):
            theirs = real_operation(NAMES[number], theirs, magnitude, augment.interpolation, augment.fill)
            picture = real_operation(NAMES[number], picture, magnitude, augment.interpolation, augment.fill)
        assert same(ours[i], theirs.numpy(), augment.interpolation), [NAMES[number] for number in drawn["operation"][i]]
        alone = {name: held[i:i + 1] for name, held in drawn.items()}
        assert (augment.transform(images[i], alone).numpy() == ours[i]).all()
        ours_of_pillow = augment.transform(Image.fromarray(batch[i].transpose(1, 2, 0)), alone)
        assert (np.array(ours_of_pillow) == np.array(picture)).all()


@pytest.mark.parametrize("settings", [{}, {"chain_depth": 2, "mixture_width": 2, "all_ops": False, "alpha": 0.3}])
def test_augmix_on_the_same_draws(settings):
    augment, batch = transforms.AugMix(**settings), pictures(12)
    images = flambeau.from_numpy(batch)
    drawn = augment.draw(len(batch), [images], streams(len(batch)))
    ours = augment.transform(images, drawn).numpy()
    for i in range(len(batch)):
        image = torch.from_numpy(batch[i])
        mixed = np.float32(drawn["own"][i]) * image
        for chain in range(augment.mixture_width):
            made = image
            for number, magnitude in zip(drawn["operation"][i, chain], drawn["magnitude"][i, chain].tolist()):
                made = real_operation(NAMES[number], made, magnitude, "bilinear")
            mixed += np.float32(drawn["weights"][i, chain]) * made
        # a sum that is a whole number but for its rounding may be cut off to the one below
        assert np.abs(ours[i].astype(int) - mixed.to(torch.uint8).numpy()).max() <= 1
        assert (ours[i] == mixed.to(torch.uint8).numpy()).mean() > 0.99


def test_mixup_and_cutmix_on_the_same_draws():
    batch = (pictures(7) / 255).astype(np.float32)
    labels = np.array([0, 3, 1, 1, 2, 4, 0])
    for ours, theirs in ((transforms.MixUp(alpha=0.4, num_classes=5), v2.MixUp(alpha=0.4, num_classes=5)),
                         (transforms.CutMix(num_classes=5), v2.CutMix(num_classes=5))):
        images = flambeau.from_numpy(batch)
        drawn = ours.draw(7, [images], streams(7))
        made = ours.transform(images, drawn)
        made_labels = ours._mixed_labels(flambeau.from_numpy(labels), drawn["kept"])
        for i in range(7):
            kept = float(drawn["kept"][i])
            params = {"labels": torch.from_numpy(labels), "batch_size": 7, "lam": kept, "lam_adjusted": kept}
            if "box" in drawn:
                params["box"] = tuple(drawn["box"][i].tolist())
            expected = theirs.transform(torch.from_numpy(batch), params)[i].numpy()
            assert np.abs(made[i].numpy() - expected).max() < 1e-6
            expected = theirs.transform(params["labels"], params)[i].numpy()
            assert np.abs(made_labels[i].numpy() - expected).max() < 1e-6


# --- how often what is drawn ---


def shares(values, kinds):
    return np.array([(values == kind).mean() for kind in kinds])


@pytest.mark.parametrize("make", [transforms.RandAugment, transforms.TrivialAugmentWide])
def test_operations_are_drawn_evenly(make):
    n = 20000
    drawn = make().draw(n, [flambeau.zeros(3, 32, 32)], streams(n))
    space = SPACES[make.__name__]
    got = shares(drawn["operation"].ravel(), [auto.NUMBERS[name] for name in space])
    assert np.abs(got - 1 / 14).max() < 0.01
    for name, held in space.items():
        mine = drawn["magnitude"][drawn["operation"] == auto.NUMBERS[name]]
        if held is not None and held.signed:
            assert abs((mine[mine != 0] < 0).mean() - 0.5) < 0.05
        elif held is not None:
            assert (mine >= 0).all()
    if make is transforms.TrivialAugmentWide:
        turned = np.abs(drawn["magnitude"][drawn["operation"] == auto.NUMBERS["Rotate"]])
        assert np.abs(shares(turned, np.unique(turned)) - 1 / 31).max() < 0.02 and len(np.unique(turned)) == 31


def test_policies_are_drawn_with_their_probabilities():
    n = 20000
    drawn = transforms.AutoAugment().draw(n, [flambeau.zeros(3, 32, 32)], streams(n))
    meant = np.zeros(len(auto.OPERATIONS) + 1)
    for pair in auto.policies_of(transforms.AutoAugmentPolicy.IMAGENET):
        for name, probability, _ in pair:
            meant[auto.NUMBERS[name]] += probability / 50
            meant[-1] += (1 - probability) / 50
    got = shares(drawn["operation"].ravel(), [*range(len(auto.OPERATIONS)), -1])
    assert np.abs(got - meant).max() < 0.01


@pytest.mark.parametrize("alpha", [0.2, 0.7, 1.0, 3.5])
def test_shares_have_the_distribution_of_torchvisions(alpha):
    n = 20000
    mixing = transforms.MixUp(alpha=alpha, num_classes=2)
    ours = np.sort(mixing.draw(n, [flambeau.zeros(2, 3, 4, 4)], streams(n))["kept"])
    torch.manual_seed(0)
    theirs = np.sort(v2.MixUp(alpha=alpha, num_classes=2)._dist.sample((n,)).numpy().ravel())
    at = np.linspace(0, n - 1, 200).astype(int)
    assert np.abs(ours[at] - theirs[at]).max() < 0.03         # quantiles
    from flambeau.data.transforms.gamma import dirichlet
    weights = dirichlet(streams(n), alpha, 3)
    assert np.abs(weights.sum(1) - 1).max() < 1e-12 and np.abs(weights.mean(0) - 1 / 3).max() < 0.01
    assert abs(weights.var(0).mean() - 2 / 9 / (3 * alpha + 1)) < 0.01


def test_boxes_have_the_distribution_of_torchvisions():
    n = 4000
    ours = transforms.CutMix(num_classes=2).draw(n, [flambeau.zeros(2, 3, 20, 30)], streams(n))
    torch.manual_seed(0)
    cut = v2.CutMix(num_classes=2)
    theirs = [cut.make_params([torch.zeros(2, 3, 20, 30)]) for _ in range(n)]
    boxes = np.array([each["box"] for each in theirs])
    assert np.abs(ours["box"].mean(0) - boxes.mean(0)).max() < 0.6
    assert np.abs(ours["box"].std(0) - boxes.std(0)).max() < 0.6
    assert abs(ours["kept"].mean() - np.mean([each["lam_adjusted"] for each in theirs])) < 0.02


# --- words ---


@pytest.mark.parametrize("text", ["RandAugment()", "RandAugment(3, 5, 21, 'bilinear', 7)", "TrivialAugmentWide()",
                                  "AutoAugment()", "AugMix()", "MixUp(num_classes=4)", "CutMix(num_classes=4)"])
def test_reprs(text):
    ours, theirs = (eval(f"module.{text}", {"module": module}) for module in (transforms, v2))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("call", [
    lambda t, x, i: t.RandAugment(num_ops=-1), lambda t, x, i: t.RandAugment(num_ops=1.5), lambda t, x, i: t.AugMix(0),
    lambda t, x, i: t.AutoAugment("imagenet"), lambda t, x, i: t.RandAugment()(3), lambda t, x, i: t.MixUp()(x, i),
    lambda t, x, i: t.MixUp(num_classes=3)(x[0], i), lambda t, x, i: t.MixUp(num_classes=3)(x[:1], i),
    lambda t, x, i: t.CutMix(num_classes=3)(x, i[0]), lambda t, x, i: t.CutMix(num_classes=3)(x, i.float()[:, None]),
    lambda t, x, i: t.MixUp(num_classes=3)({"a": x}), lambda t, x, i: t.MixUp(num_classes=3)(x, 5),
    lambda t, x, i: t.MixUp(labels_getter=3), lambda t, x, i: t.MixUp(labels_getter=None, num_classes=3)(x, i),
])
def test_refusals(call):
    raised = []
    for module, library in ((transforms, flambeau), (v2, torch)):
        with pytest.raises(Exception) as error:
            call(module, library.zeros(4, 3, 5, 5), library.tensor([0, 1, 2, 0]))
        raised.append((type(error.value), str(error.value).replace("flambeau.", "torch.")))
    assert raised[0][0] is raised[1][0], raised
    assert raised[0][1].split(".")[0][:40] == raised[1][1].split(".")[0][:40], raised


# --- single draws ---

DRAWN = {
    "AutoAugment": lambda t, x: (25,), "ColorJitter": lambda t, x: ((0.5, 1.5), None, (0.1, 2.0), (-0.1, 0.2)),
    "ElasticTransform": lambda t, x: ([50.0, 30.0], [2.0, 2.0], [20, 30]), "GaussianBlur": lambda t, x: (0.1, 2.0),
    "RandomAffine": lambda t, x: ((-10, 20), (0.1, 0.3), (0.5, 2.0), (-5, 5, -3, 3), (30, 20)),
    "RandomCrop": lambda t, x: (x, (9, 11)), "RandomErasing": lambda t, x: (x, (0.02, 0.33), (0.3, 3.3)),
    "RandomPerspective": lambda t, x: (30, 20, 0.5), "RandomResizedCrop": lambda t, x: (x, (0.1, 1.0), (0.5, 2.0)),
    "RandomRotation": lambda t, x: ((-30, 10),),
}


def flat(drawn):
    if isinstance(drawn, list | tuple):
        return [number for part in drawn for number in flat(part)]
    return flat(drawn.tolist()) if hasattr(drawn, "tolist") else [drawn]


def test_what_has_single_draws():
    assert {name for name in dir(v2) if hasattr(getattr(v2, name), "get_params")} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_single_draws(name):
    for seed in range(4):
        drawn = []
        for module, library in ((transforms, flambeau), (v2, torch)):
            library.manual_seed(seed)
            drawn.append(flat(getattr(module, name).get_params(*DRAWN[name](module, library.zeros(3, 20, 30)))))
            drawn[-1].append(library.randint(1 << 30, (1,)).item())            # as many numbers were drawn
        assert len(drawn[0]) == len(drawn[1])
        for ours, theirs in zip(*drawn):
            assert type(ours) is type(theirs) and (ours == theirs or abs(ours - theirs) < 1e-5), name


def test_fills_of_kinds():
    with pytest.raises(TypeError, match="Got inappropriate fill arg"):
        transforms.RandAugment(fill="red")
    given = flambeau.zeros(3, 3, 8, 8, dtype=flambeau.uint8)
    for fill in ({flambeau.Tensor: 9, "others": 3}, 9):
        drawn = {"operation": np.full((3, 1), auto.NUMBERS["TranslateX"]), "magnitude": np.full((3, 1), 4.0)}
        assert transforms.RandAugment(fill=fill).transform(given, drawn)[0, :, 0, 0].tolist() == [9, 9, 9]

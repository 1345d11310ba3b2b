"""Augmentations that choose their operations, and mixing: each sample's own draws, whatever batch it is in."""
import numpy as np
import pytest

import flambeau as torch
from flambeau.data import transforms
from flambeau.data.transforms import auto
from flambeau.utils.data.sample_random import addressing

AUGMENTATIONS = [transforms.RandAugment(), transforms.TrivialAugmentWide(), transforms.AutoAugment(),
                 transforms.AugMix(mixture_width=2)]


def images(n, *shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, *(shape or (3, 11, 14)))).astype(np.uint8))


@pytest.mark.parametrize("augment", AUGMENTATIONS, ids=lambda augment: type(augment).__name__)
def test_a_sample_gets_the_same_in_any_batch(augment):
    batch, indices = images(30), list(range(100, 130))
    with addressing(3, 1, indices):
        whole = augment(batch)
    with addressing(3, 1, indices[::-1]):
        backwards = augment(batch.flip(0))
    assert whole.dtype is batch.dtype and torch.equal(whole, backwards.flip(0))
    with addressing(3, 1, indices) as making:
        alone = [augment(batch[i]) for i in making.one_by_one()]
    assert torch.equal(torch.stack(alone), whole)
    with addressing(3, 2, indices):
        assert not torch.equal(augment(batch), whole)                      # another epoch


@pytest.mark.parametrize("augment", AUGMENTATIONS, ids=lambda augment: type(augment).__name__)
@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 3, 1, 1), (5, 1, 7, 3), (3, 3, 2, 9), (2, 4, 3, 6, 5)])
def test_shapes(augment, shape):
    batch = images(*shape)
    made = augment(batch)
    assert made.shape == batch.shape and made.dtype is torch.uint8
    assert augment(batch.float() / 255).dtype is torch.float32 or isinstance(augment, transforms.AugMix)


def test_samples_with_the_same_operation_are_done_together(monkeypatch):
    """A batch of any size takes one call for each operation, and one for all that move pixels."""
    calls = []
    monkeypatch.setattr(auto, "NUMBERED_OPERATIONS", [
        lambda *given, run=run, number=number: calls.append(number) or run(*given)
        for number, run in enumerate(auto.NUMBERED_OPERATIONS)])
    moved = auto.moved
    monkeypatch.setattr(auto, "moved", lambda *given: calls.append("moved") or moved(*given))
    transforms.RandAugment(num_ops=1)(images(200))
    assert sorted(map(str, calls)) == sorted(map(str, [*range(auto.LAST_MOVE + 1, auto.NUMBERS["Invert"]), "moved"]))


def test_evaluation_data_is_not_augmented():
    dataset = type("Pictures", (), {"train": False})()
    for augment in (*AUGMENTATIONS, transforms.MixUp(num_classes=3)):
        with transforms.evaluating(dataset), pytest.raises(RuntimeError, match="is random, and Pictures"):
            augment(images(2), torch.tensor([0, 1]))


def test_labels_go_along():
    batch, labels = images(4), torch.arange(4)
    made, same = transforms.RandAugment()(batch, labels)
    assert same is labels
    made = transforms.TrivialAugmentWide()({"image": batch, "label": labels})
    assert made["label"] is labels and made["image"].shape == batch.shape
    with pytest.raises(TypeError, match="Found no image in the sample"):
        transforms.RandAugment()("nothing")


@pytest.mark.parametrize("mixing", [transforms.MixUp(alpha=0.3, num_classes=6), transforms.CutMix(num_classes=6)])
def test_mixing(mixing):
    batch, labels = images(6).float() / 255, torch.tensor([0, 1, 2, 3, 4, 5])
    with addressing(0, 0, range(6)):
        mixed, shares = mixing(batch, labels)
    with addressing(0, 0, range(6)):
        again, soft = mixing({"images": batch, "labels": torch.nn.functional.one_hot(labels, 6).float()}).values()
    assert torch.equal(mixed, again) and torch.allclose(shares, soft)
    assert shares.shape == (6, 6) and torch.allclose(shares.sum(1), torch.ones(6))
    own, before = shares[labels, labels], shares[labels, labels.roll(1)]
    assert torch.allclose(own + before, torch.ones(6)) and len(set(own.tolist())) > 3        # a draw for each sample
    if isinstance(mixing, transforms.MixUp):
        kept = own.view(6, 1, 1, 1)
        assert torch.allclose(mixed, batch * kept + batch.roll(1, 0) * (1 - kept), atol=1e-6)
    else:
        replaced = (mixed != batch).any(1).float().mean((1, 2))
        assert ((mixed == batch) | (mixed == batch.roll(1, 0))).all() and torch.allclose(replaced, before, atol=0.02)


def test_numbers_of_a_mix_are_refused_early():
    with pytest.raises(ValueError, match="alpha is the parameter of a beta distribution.* got 0"):
        transforms.MixUp(alpha=0)
    with pytest.raises(RuntimeError, match="can't be cast"):
        transforms.MixUp(num_classes=3)(images(2), torch.tensor([0, 1]))


def test_gamma_numbers_of_a_sample_do_not_depend_on_others():
    from flambeau.data.transforms.gamma import gamma
    from flambeau.utils.data.sample_random import SampleRandom, sample_keys
    for alpha in (0.1, 1.0, 7.5):
        many = gamma(SampleRandom(sample_keys(0, 0, range(500))), alpha, 2)
        assert np.isfinite(many).all() and (many >= 0).all()
        some = gamma(SampleRandom(sample_keys(0, 0, [499, 3])), alpha, 2)
        assert (some == many[[499, 3]]).all()
        assert abs(many.mean() - alpha) < 5 * (alpha / 1000) ** 0.5        # five standard errors

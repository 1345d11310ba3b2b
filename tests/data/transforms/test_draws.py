"""One draw for every sample of a batch, the sample's own: the same bits whatever batch it is in, whoever makes it."""
import itertools

import numpy as np
import pytest

import flambeau as torch
from flambeau.data import transforms
from flambeau.utils.data.sample_random import addressing
from tests.thorough import sample

from .table import FLOATS_ONLY, RANDOM, made, named

SHAPE = (3, 37, 41)
rng = np.random.default_rng(0)
BYTES = rng.integers(30, 220, (6, *SHAPE)).astype(np.uint8)           # what is not stretched yet can be
FLOATS = rng.uniform(0.1, 0.9, (6, *SHAPE)).astype(np.float32)


def images_for(row):
    """A batch that the transform takes: floats where its numbers are between 0 and 1."""
    return torch.tensor(FLOATS if row[0] in FLOATS_ONLY else BYTES)


@pytest.mark.parametrize("row", RANDOM, ids=named)
def test_a_sample_is_the_same_alone_and_in_any_batch(row):
    transform, images = made(transforms, row), images_for(row)
    with addressing(7, 0, range(6)):
        together = transform(images)
    with addressing(7, 0, [4, 1]):
        some = transform(images[[4, 1]])
    alone = []
    with addressing(7, 0, range(6)) as batch:
        for i in batch.one_by_one():
            alone.append(transform(images[i]))
    assert torch.equal(together, torch.stack(alone))
    assert torch.equal(together[[4, 1]], some)


@pytest.mark.parametrize("row", RANDOM, ids=named)
def test_samples_draw_for_themselves(row):
    """Of equal samples some become different; and the next epoch has other draws."""
    transform = made(transforms, row)
    same = images_for(row)[:1].repeat(24, 1, 1, 1)
    with addressing(3, 0, range(24)):
        first = transform(same)
    with addressing(3, 1, range(24)):
        later = transform(same)
    if row[2].get("ratio") == (3.0, 3.5):           # no box of the picture has such a shape: the centre is taken
        assert torch.equal(first, later)
        return
    assert len({row.tobytes() for row in first.numpy()}) > 1
    assert not torch.equal(first, later)


def test_seeds_of_the_program_decide_outside_of_a_loader():
    transform, images = transforms.RandomResizedCrop(16), torch.tensor(BYTES)

    def once(seed):
        torch.manual_seed(seed)
        return transform(images)
    assert torch.equal(once(1), once(1))
    assert not torch.equal(once(1), once(2))


def test_what_draws_nothing_leaves_the_generator_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    transforms.Compose([transforms.CenterCrop(20), transforms.Resize(10)])(torch.tensor(BYTES))
    assert torch.equal(before, torch.random.get_rng_state())


class Pictures(torch.utils.data.Dataset):
    transform = transforms.Compose([transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip(),
                                    transforms.ColorJitter(0.4, 0.4, 0.4, 0.1), transforms.RandomErasing()])

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.transform(torch.tensor(BYTES[index % 6])), index


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_change_nothing(workers):
    def epoch(workers, batch_size=4):
        loader = torch.utils.data.DataLoader(Pictures(), batch_size, num_workers=workers, randomness="sample",
                                             generator=torch.Generator().manual_seed(5))
        return torch.cat([images for images, _ in loader])
    assert torch.equal(epoch(0), epoch(workers))
    assert torch.equal(epoch(0), epoch(0, 5))


WORKERS = {"none": {}, "2 threads": {"num_workers": 2, "worker_type": "thread"},
           "4 threads": {"num_workers": 4, "worker_type": "thread"},
           "2 processes": {"num_workers": 2, "multiprocessing_context": "fork"},
           "4 processes": {"num_workers": 4, "multiprocessing_context": "fork"}}


class Augmented(Pictures):
    """Every way there is to draw: alone, by a container, by an augmentation that chooses, and noise."""
    transform = transforms.Compose([
        transforms.RandomResizedCrop(16), transforms.RandAugment(),
        transforms.RandomChoice([transforms.RandomHorizontalFlip(), transforms.RandomRotation(30)]),
        transforms.ToDtype(torch.float32, scale=True), transforms.GaussianNoise(),
        transforms.RandomErasing(value="random")])


class AugmentedWhole(Augmented):
    """The same, a batch at a time."""

    def __getitems__(self, indices):
        images = self.transform(torch.tensor(np.stack([BYTES[index % 6] for index in indices])))
        return list(zip(images, indices, strict=True))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers, kind", sample(itertools.product(WORKERS, [Augmented, AugmentedWhole]), 3))
def test_a_resume_in_the_middle_of_an_epoch_gives_the_same_bits(workers, kind):
    """With as many workers as before, and with none: the second epoch, from its second batch on."""
    def loader(options):
        return torch.utils.data.DataLoader(kind(), 4, shuffle=True, randomness="sample",
                                           generator=torch.Generator().manual_seed(5), **options)

    def bits(batches):
        return [(images.numpy().tobytes(), indices.tolist()) for images, indices in batches]

    uninterrupted = loader({})
    first, second = bits(uninterrupted), bits(uninterrupted)
    assert not {image for image, _ in first} & {image for image, _ in second}
    stopped = loader(WORKERS[workers])
    assert bits(stopped) == first
    batches = iter(stopped)
    assert bits([next(batches)]) == second[:1]
    state = stopped.state_dict()
    del batches
    torch.manual_seed(99)                         # another program, which has drawn other numbers
    for options in (WORKERS[workers], {}):
        resumed = loader(options)
        resumed.load_state_dict(state)
        assert bits(resumed) == second[1:]


# --- containers -------------------------------------------------------------------------------------------------------


CONTAINERS = {
    "RandomApply": lambda: transforms.RandomApply([transforms.ColorJitter(0.5), transforms.RandomRotation(30)], p=0.5),
    "RandomChoice": lambda: transforms.RandomChoice([transforms.RandomInvert(1.0), transforms.RandomRotation(30),
                                                     transforms.GaussianBlur(3)], p=[1, 2, 1]),
    "RandomOrder": lambda: transforms.RandomOrder([transforms.RandomInvert(), transforms.RandomPosterize(3),
                                                   transforms.RandomSolarize(90)]),
    "nested": lambda: transforms.RandomApply([transforms.RandomChoice([transforms.RandomInvert(0.5),
                                                                       transforms.RandomRotation(30)])]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_decide_for_each_sample(name):
    transform, images = CONTAINERS[name](), torch.tensor(BYTES)
    with addressing(7, 0, range(6)):
        together = transform(images)
    with addressing(7, 0, range(6)) as batch:
        for i in batch.one_by_one():
            assert torch.equal(transform(images[i]), together[i]), i
    changed = [not torch.equal(a, b) for a, b in zip(together, images)]
    assert any(changed)


def test_labels_go_with_their_images():
    """What a container hands to a part of a batch is that part of everything that has a row for each sample."""
    seen = []

    class Look(transforms.Transform):
        def transform(self, inpt, params):
            return inpt

        def forward(self, images, labels):
            seen.append((images[:, 0, 0, 0].tolist(), labels.tolist()))
            return images, labels

    images = torch.arange(8.0).reshape(8, 1, 1, 1).repeat(1, 3, 2, 2)
    made = transforms.RandomApply([Look()], p=0.5)(images, torch.arange(8))
    assert len(made) == 2 and torch.equal(made[1], torch.arange(8))
    (pixels, labels), = seen
    assert pixels == labels


def test_a_batch_keeps_one_shape():
    crop = transforms.RandomApply([transforms.CenterCrop(5)], p=0.5)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="keep one shape and dtype"):
        crop(torch.zeros(16, 3, 9, 9))


def test_probabilities():
    torch.manual_seed(0)
    ones = torch.ones(4000, 1, 1, 1)
    flips = transforms.RandomInvert(p=0.3)(ones)
    assert abs((flips == 0).float().mean().item() - 0.3) < 0.03
    chosen = transforms.RandomChoice([transforms.Lambda(lambda x, i=i: x * i) for i in (2, 3, 4)], p=[1, 2, 5])(ones)
    assert abs((chosen == 2).float().mean().item() - 1 / 8) < 0.03


# --- nested samples ---------------------------------------------------------------------------------------------------


def test_of_tensors_the_first_is_the_image():
    image, label = torch.tensor(BYTES[0]), torch.tensor([3])
    sample = {"picture": image, "label": label, "name": "cat", "more": (1, None)}
    made = transforms.RandomHorizontalFlip(p=1.0)(sample)
    assert torch.equal(made["picture"], image.flip(-1))
    assert made["label"] is label and made["name"] == "cat" and made["more"] == (1, None)


def test_several_pictures_of_a_sample_share_their_draw():
    Image = pytest.importorskip("PIL.Image")
    picture = Image.fromarray(BYTES[0].transpose(1, 2, 0).copy())
    for seed in range(5):
        torch.manual_seed(seed)
        one, other = transforms.RandomResizedCrop(9)(picture, picture)
        assert one.tobytes() == other.tobytes()


# --- evaluation -------------------------------------------------------------------------------------------------------


class Flipped(torch.utils.data.Dataset):
    def __init__(self, flip):
        self.augmented = flip

    def __getitem__(self, index):
        return self.augmented(torch.tensor(BYTES[index]))

    def __len__(self):
        return 6


def test_a_random_transform_of_evaluation_data_raises_and_names_both():
    good = transforms.evaluation(Flipped(transforms.CenterCrop(9)))
    assert len(good) == 6 and good[2].shape == (3, 9, 9)
    bad = transforms.evaluation(Flipped(transforms.Compose([transforms.CenterCrop(9), transforms.ColorJitter(0.1)])))
    with pytest.raises(RuntimeError, match=r"ColorJitter\(brightness=\(0.9, 1.1\).* is random, and the Flipped is "):
        bad[0]
    with pytest.raises(RuntimeError, match="is random"):
        next(iter(torch.utils.data.DataLoader(bad, 3)))
    transforms.ColorJitter(0.1)(torch.tensor(BYTES))                    # outside of it nothing is refused


def test_declared_when_the_transform_is_known():
    for transform in (transforms.RandomCrop(3), transforms.Compose([transforms.RandomApply([transforms.Identity()])])):
        data = Flipped(None)
        data.transform = transform
        with pytest.raises(RuntimeError, match="is random"):
            transforms.evaluation(data)


@pytest.mark.parametrize("row", RANDOM, ids=named)
def test_every_transform_that_draws_knows_that_it_is_random(row):
    transform = made(transforms, row)
    assert transforms.random_parts(transforms.Compose([transform])) == [transform]
    with transforms.evaluating(Flipped(None)), pytest.raises(RuntimeError, match="is random"):
        transform(images_for(row))

"""Pictures to look at: grids, files, what is drawn where."""
import io

import numpy as np
import pytest

import flambeau as torch
from flambeau.data import pictures


def test_a_grid_has_each_picture_in_its_place():
    batch = torch.arange(1.0, 6).view(5, 1, 1, 1).expand(5, 3, 2, 4)
    grid = pictures.make_grid(batch, nrow=3, padding=1, pad_value=9)
    assert grid.shape == (3, 7, 16)
    for i in range(5):
        row, column = 1 + i // 3 * 3, 1 + i % 3 * 5
        assert (grid[:, row:row + 2, column:column + 4] == i + 1).all()
    assert int((grid == 9).sum()) == grid.numel() - 5 * 3 * 2 * 4
    assert not batch.requires_grad and pictures.make_grid(batch[:1]).shape == (3, 2, 4)


def test_normalising_changes_nothing_of_the_input():
    x = torch.tensor([[[[2.0, 4.0]]], [[[0.0, 1.0]]]])
    before = x.clone()
    whole = pictures.make_grid(x, padding=0, normalize=True)
    each = pictures.make_grid(x, padding=0, normalize=True, scale_each=True)
    assert torch.equal(x, before) and torch.equal(whole[0], torch.tensor([[0.5, 1.0, 0.0, 0.25]]))
    assert torch.equal(each[0], torch.tensor([[0.0, 1.0, 0.0, 1.0]]))
    assert pictures.make_grid(torch.full((1, 3, 2, 2), 7.0), normalize=True).max() == 0


def test_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    x = torch.tensor([[[0.0, 1.0], [0.5, 2.0]]]).expand(3, 2, 2)
    pictures.save_image(x, tmp_path / "x.png")
    assert np.array(image.open(tmp_path / "x.png"))[..., 0].tolist() == [[0, 255], [128, 255]]
    held = io.BytesIO()
    pictures.save_image([x, x], held, format="PNG", nrow=1)
    assert image.open(held).size == (6, 10)


def test_drawing():
    pytest.importorskip("PIL")
    black = torch.zeros(3, 20, 20, dtype=torch.uint8)
    boxed = pictures.draw_bounding_boxes(black, torch.tensor([[2, 3, 10, 12]]), colors=(255, 0, 7))
    assert boxed[:, 3, 2].tolist() == [255, 0, 7] and boxed[:, 12, 10].tolist() == [255, 0, 7]
    assert int((boxed[0] == 255).sum()) == 2 * 9 + 2 * 8 and not black.any()
    pointed = pictures.draw_keypoints(black, torch.tensor([[[5.0, 6.0]]]), colors="red", radius=1)
    assert pointed[:, 6, 5].tolist() == [255, 0, 0]
    for empty in (lambda: pictures.draw_bounding_boxes(black, torch.zeros(0, 4)),
                  lambda: pictures.draw_segmentation_masks(black, torch.zeros(0, 20, 20, dtype=torch.bool))):
        with pytest.warns(UserWarning, match="doesn't contain any"):
            assert empty() is black


def test_still_flows_are_white():
    assert (pictures.flow_to_image(torch.zeros(2, 3, 3)) == 255).all()

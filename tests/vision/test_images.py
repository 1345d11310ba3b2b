"""Pictures through Pillow: what is written is read again, in every mode; files that are damaged are refused."""
import io
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import images
from tests.vision import damaged


def test_without_pillow_it_says_what_to_install(monkeypatch):
    for name in ["PIL", "PIL.Image", *(name for name in sys.modules if name.startswith("PIL."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install pillow"):
        images.encode_png(torch.zeros(3, 4, 4, dtype=torch.uint8), 6)


def test_files_are_bytes(tmp_path):
    data = torch.arange(256).to(torch.uint8)
    images.write_file(str(tmp_path / "f"), data)
    assert images.read_file(str(tmp_path / "f")).tolist() == data.tolist()
    with pytest.raises(RuntimeError, match=r"\[Errno 2\] No such file or directory: '.*none'"):
        images.read_file(str(tmp_path / "none"))
    (tmp_path / "empty").touch()
    with pytest.raises(RuntimeError, match="Expected a non empty file"):
        images.read_file(str(tmp_path / "empty"))


class TestWithPillow:
    @pytest.fixture(autouse=True)
    def pillow(self):
        self.Image = pytest.importorskip("PIL.Image")

    @pytest.fixture
    def picture(self, rng):
        return torch.tensor(rng.integers(0, 256, (3, 9, 13)).astype(np.uint8))

    def saved(self, array, form, **options):
        to = io.BytesIO()
        image = array if isinstance(array, self.Image.Image) else self.Image.fromarray(array)
        image.save(to, form, **options)
        return torch.tensor(np.frombuffer(to.getvalue(), np.uint8))

    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("level", [0, 9])
    def test_png(self, picture, channels, level):
        data = images.encode_png(picture[:channels], level)
        assert torch.equal(images.decode_png(data, images.UNCHANGED), picture[:channels])
        assert torch.equal(images.decode_image(data, images.RGB), picture[:channels].expand(3, -1, -1))

    def test_modes(self, picture, rng):
        alpha = torch.tensor(rng.integers(0, 256, (1, 9, 13)).astype(np.uint8))
        data = self.saved(torch.cat([picture, alpha]).permute(1, 2, 0).numpy(), "png")
        assert torch.equal(images.decode_png(data, images.UNCHANGED), torch.cat([picture, alpha]))
        assert torch.equal(images.decode_png(data, images.RGB), picture)
        gray = images.decode_png(data, images.GRAY_ALPHA)
        assert torch.equal(gray[1:], alpha)
        want = (0.2989 * picture[0].double() + 0.587 * picture[1].double() + 0.1141 * picture[2].double())
        assert (gray[0].double() - want).abs().max() <= 1

    def test_palettes_and_single_bits(self):
        image = self.Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).quantize(4)
        data = self.saved(image, "png")
        assert torch.equal(images.decode_png(data, images.RGB), torch.tensor(np.array(image.convert("RGB"))).permute(2,
                                                                                                                     0,
                                                                                                                     1))
        assert images.decode_png(data, images.UNCHANGED).tolist() == [np.array(image).tolist()]
        bits = self.Image.fromarray(np.eye(4, dtype=bool))
        assert images.decode_png(self.saved(bits, "png"), images.UNCHANGED).unique().tolist() == [0, 255]

    def test_jpeg(self, rng):
        smooth = torch.tensor(np.add.outer(np.arange(32), np.arange(40)).astype(np.uint8) * 3)[None].expand(3, -1, -1)
        for mode, channels in ((images.UNCHANGED, 3), (images.GRAY, 1), (images.RGB, 3)):
            seen = images.decode_image(images.encode_jpeg(smooth, 95), mode)
            assert seen.shape == (channels, 32, 40) and (seen.int() - smooth[:channels].int()).abs().max() < 6
        with pytest.raises(RuntimeError, match="not supported for JPEG"):
            images.decode_jpeg(images.encode_jpeg(smooth, 95), images.RGBA)

    def test_pictures_are_turned_as_they_say(self, picture):
        exif = self.Image.Exif()
        exif[0x0112] = 6                                                   # it was taken with the camera turned
        data = self.saved(picture.permute(1, 2, 0).numpy(), "png", exif=exif)
        assert torch.equal(images.decode_image(data, images.RGB), picture)
        assert torch.equal(images.decode_image(data, images.RGB, True), picture.rot90(-1, (1, 2)))

    def test_gif_and_webp(self, picture):
        frames = [self.Image.fromarray(picture[n].numpy()) for n in range(3)]
        moving = images.decode_image(self.saved(frames[0], "gif", save_all=True, append_images=frames[1:]), images.RGB)
        assert moving.shape == (3, 3, 9, 13) and torch.equal(moving[1], picture[1].expand(3, -1, -1))
        assert images.decode_gif(self.saved(frames[0], "gif")).shape == (3, 9, 13)
        webp = self.saved(picture.permute(1, 2, 0).numpy(), "webp", lossless=True)
        assert torch.equal(images.decode_image(webp, images.UNCHANGED), picture)

    def test_what_is_no_picture_is_refused(self, picture):
        data = images.encode_png(picture, 6)
        with pytest.raises(RuntimeError, match="Content is not jpeg"):
            images.decode_jpeg(data, images.UNCHANGED)
        with pytest.raises(RuntimeError, match="cannot be decoded"):
            images.decode_png(data[:-60], images.UNCHANGED)
        with pytest.raises(RuntimeError, match="Unsupported image file"):
            images.decode_image(data[4:], images.UNCHANGED)
        with pytest.raises(RuntimeError, match="uint8"):
            images.encode_png(picture.float(), 6)

    def test_damaged_files(self):
        """Pillow raises a dozen kinds of errors for them; here it is one, which says why, and names a file."""
        outcomes = {word for seed in range(400) for word in damaged.attempt(seed)}
        assert outcomes == {"read", "refused", "read by name", "refused by name"}

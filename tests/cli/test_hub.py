"""torch.hub: weights by address, models from a folder; and never code from elsewhere."""

import hashlib

import pytest

import flambeau as torch
from flambeau import hub


@pytest.fixture
def weights(tmp_path):
    """A file of weights, its address, and the beginning of its hash."""
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.arange(3.0)}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    named = path.rename(tmp_path / f"net-{digest[:8]}.pth")
    return named, named.as_uri(), digest


def test_weights_are_fetched_once(weights, tmp_path, capsys):
    path, url, digest = weights
    found = hub.load_state_dict_from_url(url, model_dir=tmp_path / "cache", check_hash=True)
    assert found["weight"].tolist() == [0, 1, 2] and "Downloading" in capsys.readouterr().err
    path.unlink()
    found = hub.load_state_dict_from_url(url, model_dir=tmp_path / "cache", check_hash=True)
    assert found["weight"].tolist() == [0, 1, 2] and not capsys.readouterr().err


def test_a_file_appears_whole_or_not_at_all(weights, tmp_path):
    _, url, digest = weights
    target = tmp_path / "target.pth"
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.download_url_to_file(url, target, hash_prefix="0" * 8, progress=False)
    assert not target.exists() and not list(tmp_path.glob("*.partial"))
    hub.download_url_to_file(url, target, hash_prefix=digest[:12], progress=False)
    assert hashlib.sha256(target.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "..", "a/..", "../cachet/x"])
def test_a_file_stays_in_its_folder(weights, tmp_path, name):
    """Neither what is there already is read from elsewhere, nor what is fetched written there."""
    _, url, _ = weights
    torch.save({"weight": torch.zeros(1)}, tmp_path / "x")
    before = sorted(tmp_path.iterdir())
    (tmp_path / "cache").mkdir()
    with pytest.raises(ValueError, match="is not a file in .*cache; give the folder as model_dir="):
        hub.load_state_dict_from_url(url, model_dir=tmp_path / "cache", file_name=name, progress=False)
    with pytest.raises(ValueError, match="is not a file in"):
        hub.load_state_dict_from_url("https://nowhere.invalid/..", model_dir=tmp_path / "cache", progress=False)
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "cache"])
    assert not any((tmp_path / "cache").iterdir())


def test_a_link_in_the_folder_is_followed(weights, tmp_path):
    path, url, _ = weights
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "mine.pth").symlink_to(path)
    found = hub.load_state_dict_from_url("https://nowhere.invalid/x", tmp_path / "cache", file_name="mine.pth")
    assert found["weight"].tolist() == [0, 1, 2]


def test_models_of_a_folder(tmp_path):
    (tmp_path / "layers.py").write_text("value = 3\n")
    (tmp_path / "hubconf.py").write_text("dependencies = ['numpy']\nfrom layers import value\n"
                                         "def net(width, scale=1):\n    'makes one'\n    return width * value * scale\n"
                                         "def _hidden(): pass\n")
    assert hub.load(str(tmp_path), "net", 2, scale=5, source="local") == 30
    assert hub.list(str(tmp_path), source="local") == ["net"]
    assert hub.help(str(tmp_path), "net", source="local") == "makes one"
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        hub.load(str(tmp_path), "other", source="local")
    with pytest.raises(NotImplementedError, match="fetches no code: clone pytorch/vision"):
        hub.load("pytorch/vision", "resnet18")
    with pytest.raises(ValueError, match="Unknown source"):
        hub.load(str(tmp_path), "net", source="ftp")
    with pytest.raises(FileNotFoundError, match="hubconf.py"):
        hub.load(str(tmp_path / "nowhere"), "net", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package_at_all']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_at_all"):
        hub.load(str(tmp_path), "net", source="local")


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "_dir", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")
    hub.set_dir(str(tmp_path / "other"))
    assert hub.get_dir() == str(tmp_path / "other")

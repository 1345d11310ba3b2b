"""torch.hub: weights by address, models from a folder; and never code from elsewhere."""

import contextlib
import hashlib
import socket
import threading
import time
from urllib.error import URLError

import pytest

import flambeau as torch
from flambeau import hub
from flambeau.data.datasets import utils as datasets


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
    with pytest.raises(ValueError, match="is not in .*cache; give the folder as model_dir="):
        hub.load_state_dict_from_url(url, model_dir=tmp_path / "cache", file_name=name, progress=False)
    with pytest.raises(ValueError, match="is not in"):
        hub.load_state_dict_from_url("https://nowhere.invalid/..", model_dir=tmp_path / "cache", progress=False)
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "cache"])
    assert not any((tmp_path / "cache").iterdir())


@contextlib.contextmanager
def server(*says):
    """The address of a server that sends each of `says` and then nothing; with None it hangs up instead."""
    listening, done = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        with contextlib.suppress(OSError), listening.accept()[0] as to:
            to.recv(1 << 16)
            for said in says:
                if said is None:
                    return
                to.sendall(said)
            done.wait(30)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/net.pth"
    finally:
        done.set()
        listening.close()
        thread.join(30)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
SILENT = "the server has sent nothing for 0.3 seconds"


@pytest.mark.parametrize("says, error, words", [
    ([], TimeoutError, SILENT), ([HEAD], TimeoutError, SILENT), ([HEAD[:20]], TimeoutError, SILENT),
    ([HEAD, bytes(700)], TimeoutError, SILENT),
    ([None], ConnectionError, "the connection has ended: "),
    ([HEAD[:20], None], RuntimeError, "ended after 0 of . bytes"),
    ([b"nonsense\r\n", None], ConnectionError, "BadStatusLine"),
    ([HEAD, bytes(700), None], RuntimeError, "ended after 700 of 1000 bytes")], ids=str)
@pytest.mark.parametrize("fetch", [
    lambda url, folder: hub.load_state_dict_from_url(url, model_dir=folder, progress=False),
    lambda url, folder: datasets.download_url(url, str(folder))], ids=["hub", "datasets"])
def test_a_server_that_says_nothing_more(tmp_path, monkeypatch, says, error, words, fetch):
    """It is an error before long, which names the address and what to do; and nothing is left behind."""
    monkeypatch.setattr(hub, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setenv("no_proxy", "*")
    begun = time.monotonic()
    with server(*says) as url:
        with pytest.raises(error, match=words) as raised:
            fetch(url, tmp_path)
    assert time.monotonic() - begun < 10 and url in str(raised.value) and not [*tmp_path.iterdir()]


def test_a_server_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as one:
        url = f"http://127.0.0.1:{one.getsockname()[1]}/net.pth"
    with pytest.raises(URLError, match="cannot be reached: .*refused.* Try again"):
        hub.download_url_to_file(url, tmp_path / "net.pth")


@pytest.mark.parametrize("name", ["../x", "/x", "..", "a/../../x"])
def test_datasets_stay_in_their_folder(weights, tmp_path, name):
    with pytest.raises(ValueError, match="filename=.* is not in .*; give a name that stays inside"):
        datasets.download_url(weights[1], str(tmp_path / "cache"), name)
    assert not (tmp_path / "cache").exists()


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

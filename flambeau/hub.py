"""`torch.hub`: weights from an address, and models from a folder with a `hubconf.py`.

Code is never fetched: a repository is cloned by hand and named by its folder, `load(folder, model, source="local")`.
Weights are read by `torch.load`, with PyTorch's own default here: `weights_only=False`, which trusts the file.
"""
import builtins
import contextlib
import os
import re
import sys
from urllib.parse import urlparse  # timm takes it from here

from .base.lazy import import_when_asked
from .base.names import attribute_error
from .base.paths import inside

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")            # resnet18-bfd8deac.pth
DOWNLOAD_CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0        # without an answer, or without a further byte, until a download is given up
_dir = None


def get_dir():
    """The folder for downloaded files: what `set_dir` said, or `$TORCH_HOME/hub`, or `~/.cache/torch/hub`."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def _get_torch_home():
    """`$TORCH_HOME`, or `~/.cache/torch`; torchvision and timm keep files there, too."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d):
    """Set the folder for downloaded files."""
    global _dir
    _dir = os.path.expanduser(d)


# --- weights ------------------------------------------------------------------------------------------------------


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None,
                             weights_only=False):
    """What `torch.load` gives of the file at `url`, downloaded to `model_dir` unless it is there already.

    Whatever the file names is run, unless `weights_only=True` is given: see docs/saving.md.
    """
    from .serialization import load as read
    model_dir = model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints")
    os.makedirs(model_dir, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    path = inside(model_dir, name, "file_name", "; give the folder as model_dir=, and the file's name alone")
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        if progress:
            print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        download_url_to_file(url, path, found[1] if found else None, progress)
    return read(path, map_location=map_location, weights_only=weights_only)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Save what is at `url` as the file `dst`; refused if its SHA-256 does not start with `hash_prefix`.

    The file appears whole or not at all.
    """
    import hashlib
    from urllib.request import Request, urlopen

    from .serialization.atomic import replacing
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    with told_of(url), urlopen(Request(url, headers={"User-Agent": "flambeau.hub"}),
                                timeout=TIMEOUT_SECONDS) as source:
        size = source.headers.get("Content-Length")
        with replacing(dst) as part:
            read = _copy(source, part, digest, size, progress)
            if read != (int(size) if size is not None else read or None):     # the answer may end before the length
                raise RuntimeError(f"the download of {url} ended after {read} of {size or '?'} bytes; try again")
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}"): {url}')


@contextlib.contextmanager
def told_of(url):
    """A server that says nothing is an error that names the address and what to do."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    advice = f"Try again; or fetch it in another way, and give the file to torch.load: {url}"
    try:
        yield
    except HTTPError:                             # it has answered, and says what is wrong
        raise
    except (TimeoutError, URLError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise TimeoutError(f"the server has sent nothing for {TIMEOUT_SECONDS:g} seconds. {advice}") from error
        raise URLError(f"the server cannot be reached: {reason}. {advice}") from error
    except (ConnectionError, HTTPException) as error:
        raise ConnectionError(f"the connection has ended: {type(error).__name__}: {error}. {advice}") from error


def _copy(source, part, digest, size, progress):
    """Write all of `source` into the file `part`; how many bytes there were."""
    read = 0
    while block := source.read(DOWNLOAD_CHUNK_BYTES):
        part.write(block)
        digest.update(block)
        read += len(block)
        if progress:
            _show(read, size)
    return read


def _show(read, size):
    """How far a download is, on one line of a terminal."""
    if sys.stderr.isatty():
        of = f" of {int(size) / 2**20:.1f}" if size is not None else ""
        sys.stderr.write(f"\r{read / 2**20:.1f}{of} MiB" + ("\n" if size is not None and read == int(size) else ""))
        sys.stderr.flush()


# --- models -------------------------------------------------------------------------------------------------------


def load(repo_or_dir, model, *args, source="github", trust_repo="check", force_reload=False, verbose=True,
         skip_validation=False, **kwargs):
    """What the function `model` in the `hubconf.py` of a folder gives, for `source="local"`. It runs that file."""
    return _entry(_hubconf(repo_or_dir, source), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo="check", verbose=True, *, source="github"):
    """The names of the functions in a folder's `hubconf.py`, for `source="local"`."""
    found = vars(_hubconf(github, source))
    return [name for name, value in found.items() if callable(value) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo="check", *, source="github"):
    """The docstring of a function in a folder's `hubconf.py`, for `source="local"`."""
    return _entry(_hubconf(github, source), model).__doc__


def _hubconf(folder, source):
    """The module `hubconf.py` of a folder, run anew."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(f"torch.hub fetches no code: clone {folder} with git, and give its folder with "
                                  'source="local". Weights alone can be had with torch.hub.load_state_dict_from_url.')
    import importlib.util
    path = os.path.join(os.path.expanduser(folder), "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"torch.hub: there is no {path}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))       # it imports its own modules
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(os.path.abspath(path)))
    missing = [name for name in builtins.list(getattr(module, "dependencies", ()))
               if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module, model):
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


# --- progress -----------------------------------------------------------------------------------------------------


class Progress:
    """The part of `tqdm` that torchvision's downloads use, where tqdm is not installed: a line on how far it is."""

    def __init__(self, iterable=None, total=None, disable=False, **layout):
        self.iterable, self.total, self.disable, self.n = iterable, total, disable, 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __iter__(self):
        for item in self.iterable:
            yield item
            self.update(1)

    def update(self, n=1):
        """So many more bytes are done."""
        self.n += n
        if not self.disable:
            _show(self.n, self.total)

    def close(self):
        """End the line."""
        if not self.disable and self.total is None and sys.stderr.isatty():
            sys.stderr.write("\n")


def _tqdm():
    """The bar that downloads of torchvision and others show; it is no dependency of ours."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Progress
    return tqdm


__getattr__ = import_when_asked(__name__, {"tqdm": _tqdm},
                                lambda name: attribute_error("torch.hub", name, lambda: __all__))

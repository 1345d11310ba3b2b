"""Files of datasets: whether they are whole, where they come from, what is in an archive.

A download appears whole and with its checksum right, or not at all; so does what is taken out of an archive.
"""
import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from ... import hub
from ...base.paths import inside
from ...hub import DOWNLOAD_CHUNK_BYTES, _show, told_of
from ...serialization import atomic

__all__ = ["calculate_md5", "check_integrity", "check_md5", "download_and_extract_archive", "download_url",
           "extract_archive", "iterable_to_str", "list_dir", "list_files", "verify_str_arg"]

COMPRESSED_FILE_OPENERS = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
ARCHIVE_SUFFIXES = (".tar", ".zip")
ARCHIVE_ALIASES = {".tbz": (".tar", ".bz2"), ".tbz2": (".tar", ".bz2"), ".tgz": (".tar", ".gz")}


# --- checksums ---


def calculate_md5(fpath, chunk_size=1024 * 1024):
    """The MD5 checksum of a file, in hexadecimal digits."""
    with open(fpath, "rb") as file:
        return _md5_of(file, chunk_size)


def _md5_of(file, chunk_size):
    digest = hashlib.md5(usedforsecurity=False)
    while block := file.read(chunk_size):
        digest.update(block)
    return digest.hexdigest()


def check_md5(fpath, md5, **kwargs):
    """Whether the file has this checksum."""
    return md5 == calculate_md5(fpath, **kwargs)


def check_integrity(fpath, md5=None):
    """Whether the file is there, with this checksum where one is given."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def fault_of(path, md5=None):
    """What is wrong with a file of a dataset, in words; None if nothing is."""
    if not os.path.isfile(path):
        return f"there is no {path}"
    found = calculate_md5(path) if md5 is not None else None
    return None if found == md5 else f"{path} has the MD5 checksum {found} instead of {md5}"


# --- downloads ---


def download_url(url, root, filename=None, md5=None, max_redirect_hops=3):
    """Save what is at `url` as `filename` in the folder `root`, unless it is there with the checksum `md5` already.

    At most `max_redirect_hops` redirections are followed.
    """
    from urllib.request import Request, build_opener
    root = os.path.expanduser(root)
    path = inside(root, filename or os.path.basename(url), "filename")
    os.makedirs(root, exist_ok=True)
    if check_integrity(path, md5):
        return
    digest = hashlib.md5(usedforsecurity=False)
    opener = build_opener(_hops(max_redirect_hops))
    request = Request(url, headers={"User-Agent": "flambeau.data"})
    with told_of(url), opener.open(request, timeout=hub.TIMEOUT_SECONDS) as source, atomic.replacing(path) as part:
        size = source.headers.get("Content-Length")
        read = _copied(source, part, digest, size)
        if read != (int(size) if size is not None else read or None):         # the answer may end before the length
            raise RuntimeError(f"File not found or corrupted. The download of {url} ended after {read} of "
                               f"{size or '?'} bytes; try again")
        if md5 is not None and digest.hexdigest() != md5:
            raise RuntimeError(f"File not found or corrupted. {url} has the MD5 checksum {digest.hexdigest()} instead "
                               f"of {md5}, and was not saved")


def _copied(source, part, digest, size):
    """Write all of `source` into `part`; how many bytes there were."""
    read = 0
    while block := source.read(DOWNLOAD_CHUNK_BYTES):
        part.write(block)
        digest.update(block)
        read += len(block)
        _show(read, size)
    return read


def _hops(count):
    """What follows `count` redirections and no more."""
    from urllib.request import HTTPRedirectHandler

    class Hops(HTTPRedirectHandler):
        max_redirections = count
    return Hops()


# --- archives ---


def file_type(path):
    """(the suffixes of the name that say what it is, the kind of archive or None, the compression or None)."""
    suffixes = Path(path).suffixes
    if not suffixes:
        raise RuntimeError(f"File '{path}' has no suffixes that could be used to detect the archive type and "
                           "compression.")
    last = suffixes[-1]
    if last in ARCHIVE_ALIASES:
        return last, *ARCHIVE_ALIASES[last]
    if last in ARCHIVE_SUFFIXES:
        return last, last, None
    if last in COMPRESSED_FILE_OPENERS:
        inner = suffixes[-2] if len(suffixes) > 1 else None
        return (inner + last, inner, last) if inner in ARCHIVE_SUFFIXES else (last, None, last)
    known = sorted({*ARCHIVE_ALIASES, *ARCHIVE_SUFFIXES, *COMPRESSED_FILE_OPENERS})
    raise RuntimeError(f"Unknown compression or archive type: '{last}'.\nKnown suffixes are: '{known}'.")


def extract_archive(from_path, to_path=None, remove_finished=False):
    """Take everything out of an archive, or decompress a single file, into the folder `to_path`; where it is now.

    Without `to_path` it is the archive's own folder.
    """
    to_path = os.path.dirname(from_path) if to_path is None else to_path
    suffix, archive, compression = file_type(from_path)
    if archive is None:
        made = os.path.join(to_path, os.path.basename(from_path).removesuffix(suffix))
        with COMPRESSED_FILE_OPENERS[compression](from_path, "rb") as source, atomic.replacing(made) as part:
            shutil.copyfileobj(source, part)
    else:
        made = to_path
        _unpack(from_path, to_path, archive, compression)
    if remove_finished:
        os.remove(from_path)
    return os.fspath(made) if isinstance(from_path, str) else Path(made)


def _unpack(from_path, to_path, archive, compression):
    """Unpack into a folder beside the destination, and move what is there once all of it is."""
    os.makedirs(to_path, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to_path, prefix=".unpacking-") as folder:
        if archive == ".tar":
            with tarfile.open(from_path, f"r:{compression[1:]}" if compression else "r") as opened:
                _extract_tar(opened, folder)
        else:
            with zipfile.ZipFile(from_path) as opened:
                opened.extractall(folder)
        for directory, _, files in os.walk(folder):
            there = os.path.join(to_path, os.path.relpath(directory, folder))
            os.makedirs(there, exist_ok=True)
            for name in files:
                os.replace(os.path.join(directory, name), os.path.join(there, name))


def _extract_tar(tar, folder):
    """Extract a tar file, and nothing outside of `folder`."""
    if hasattr(tarfile, "data_filter"):
        return tar.extractall(folder, filter="data")
    for member in tar.getmembers():            # Python before 3.11.4; without links, names alone say where a file goes
        if os.path.isabs(member.name) or ".." in member.name.split("/"):
            raise tarfile.TarError(f"{tar.name}: {member.name!r} would be extracted outside of the folder")
        if not member.isfile() and not member.isdir():
            raise tarfile.TarError(f"{tar.name}: {member.name!r} is a link or a device, which this Python cannot "
                                   "extract safely: Python 3.11.4 and later can")
    return tar.extractall(folder)


def download_and_extract_archive(url, download_root, extract_root=None, filename=None, md5=None,
                                 remove_finished=False):
    """`download_url`, then `extract_archive` into `extract_root`."""
    download_root = os.path.expanduser(download_root)
    filename = filename or os.path.basename(url)
    download_url(url, download_root, filename, md5)
    extract_archive(os.path.join(download_root, filename), extract_root or download_root, remove_finished)


# --- folders and arguments ---


def list_dir(root, prefix=False):
    """The names of the folders in `root`; with `prefix`, their paths."""
    root = os.path.expanduser(root)
    return [os.path.join(root, name) if prefix is True else name for name in os.listdir(root)
            if os.path.isdir(os.path.join(root, name))]


def list_files(root, suffix, prefix=False):
    """The names of the files in `root` that end with `suffix`; with `prefix`, their paths."""
    root = os.path.expanduser(root)
    return [os.path.join(root, name) if prefix is True else name for name in os.listdir(root)
            if name.endswith(suffix) and os.path.isfile(os.path.join(root, name))]


def iterable_to_str(iterable):
    """The items in quotes, with commas between."""
    return "'" + "', '".join([str(item) for item in iterable]) + "'"


def verify_str_arg(value, arg=None, valid_values=None, custom_msg=None):
    """`value`, if it is a string among `valid_values`; ValueError otherwise."""
    if not isinstance(value, str):
        about = f" for argument {arg}" if arg is not None else ""
        raise ValueError(f"Expected type str{about}, but got type {type(value)}.")
    if valid_values is not None and value not in valid_values:
        raise ValueError(custom_msg or f"Unknown value '{value}' for argument {arg}. Valid values are "
                                       f"{{{iterable_to_str(valid_values)}}}.")
    return value

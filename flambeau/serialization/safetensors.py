"""safetensors files: a header in JSON, then the bytes of the tensors, one behind the other.

Tensors are looked at where the mapped file has them. `__metadata__` carries two entries of ours, which other readers
pass over: a checksum for each tensor, and which names share one tensor that is written once.
"""
import io
import itertools
import json
import math
import mmap
import os
import re
import zlib

from ..backends.cpu import host
from ..base import dtypes
from ..base.spec import CPU, META, as_device, spec
from ..tensor.tensor import Tensor, wrap
from ..trace.value import Storage, Value
from .archive import CHUNK_BYTES
from .atomic import replacing
from .errors import FileError, NotSupported, bare, naming, shown

MAX_HEADER_BYTES = 100_000_000                      # bytes, as the original library has it
CHECKSUMS_KEY, ALIASES_KEY = "flambeau.crc32", "flambeau.aliases"
OWN_KEYS = (CHECKSUMS_KEY, ALIASES_KEY)
DTYPE_OF_CODE = {"BOOL": dtypes.bool, "U8": dtypes.uint8, "I8": dtypes.int8, "F8_E5M2": dtypes.float8_e5m2,
                 "F8_E4M3": dtypes.float8_e4m3fn, "F8_E8M0": dtypes.float8_e8m0fnu,
                 "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz,
                 "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz, "I16": dtypes.int16, "U16": dtypes.uint16,
                 "F16": dtypes.float16,
                 "BF16": dtypes.bfloat16, "I32": dtypes.int32, "U32": dtypes.uint32, "F32": dtypes.float32,
                 "C64": dtypes.complex64, "F64": dtypes.float64, "I64": dtypes.int64, "U64": dtypes.uint64}
CODE_OF = {dtype: code for code, dtype in DTYPE_OF_CODE.items()}
DTYPE_RANKS = {dtype: rank for rank, dtype in enumerate(DTYPE_OF_CODE.values())}
# Bits of an element of every dtype that the format knows, so that a file with others can be read around them.
BITS_OF_CODE = {**{code: 8 * dtype.itemsize for code, dtype in DTYPE_OF_CODE.items()},
                "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}

COPIED_METADATA_HINT = (f"(A program that has changed the tensors and copied the metadata, {CHECKSUMS_KEY} included, "
                        "would look the same: verify=False.)")

SafetensorError = FileError


# --- writing --------------------------------------------------


def save_file(tensors, filename, metadata=None):
    """Write a dict of tensors to a file, which is replaced whole or not at all.

    Names for one and the same tensor are written once, and `load_file` gives them one storage again; tensors that
    overlap otherwise are refused.
    """
    plan = FileLayout(tensors, metadata)
    with replacing(filename) as file:
        plan.write(file)


def save(tensors, metadata=None):
    """The bytes that `save_file` would write."""
    file = io.BytesIO()
    FileLayout(tensors, metadata).write(file)
    return file.getvalue()


class FileLayout:
    """What goes where in a file that is to be written."""

    def __init__(self, tensors, metadata):
        check_metadata(metadata)
        self.metadata = dict(metadata or {})
        written, self.aliases = written_once(tensors)
        # As the original library orders them: the widest dtypes first, so that every tensor is aligned; then by name.
        self.order = sorted(written, key=lambda name: (-DTYPE_RANKS[written[name]._spec.dtype], name))
        self.kept = {name: (written[name], written[name]._storage.value.ready()) for name in self.order}

    def header(self, sums):
        entries, at = {}, 0
        metadata = {**self.metadata, CHECKSUMS_KEY: json.dumps(sums)}
        if self.aliases:
            metadata[ALIASES_KEY] = json.dumps(self.aliases)
        entries["__metadata__"] = metadata
        for name in self.order:
            spec = self.kept[name][0]._spec
            entries[name] = {"dtype": CODE_OF[spec.dtype], "shape": list(spec.shape),
                             "data_offsets": [at, at + spec.nbytes]}
            at += spec.nbytes
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-(8 + len(text)) % 64)
        if len(text) > MAX_HEADER_BYTES:
            raise ValueError(f"the header takes {len(text)} bytes; readers take {MAX_HEADER_BYTES} at most")
        return len(text).to_bytes(8, "little") + text

    def write(self, file):
        """The checksums stand in front of what they are about: zeros are written first, and overwritten at the end."""
        sums = dict.fromkeys(self.order, "0" * 8)
        start = self.header(sums)
        file.write(start)
        for name in self.order:
            tensor, value = self.kept[name]
            first = tensor._offset * tensor._spec.dtype.itemsize
            view = memoryview(value.bytes_on_host())[first:first + tensor._spec.nbytes] if tensor._spec.numel else b""
            crc = described_crc(name, CODE_OF[tensor._spec.dtype], tensor._spec.shape)
            for at in range(0, len(view), CHUNK_BYTES):
                crc = zlib.crc32(view[at:at + CHUNK_BYTES], crc)
                file.write(view[at:at + CHUNK_BYTES])
            sums[name] = f"{crc:08x}"
        file.seek(0)
        file.write(self.header(sums))


def described_crc(name, code, shape):
    """Where the checksum of a tensor begins: it covers what the header says of it."""
    return zlib.crc32(f"{name}:{code}:{list(shape)}".encode())


def check_metadata(metadata):
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(type(part) is str for item in metadata.items() for part in item):
        raise TypeError(f"argument 'metadata': a dict from str to str is taken, got {shown(metadata)}")
    for text in itertools.chain.from_iterable(metadata.items()):
        check_encodable("metadata", text)
    taken = [name for name in OWN_KEYS if name in metadata]
    if taken:
        raise ValueError(f"metadata {taken[0]!r} belongs to the file that it was read from; leave it out")


def check_encodable(what, text):
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what}, {text!r}, has half of a surrogate pair at {error.start}, which UTF-8, and so the "
                         "format, has not") from error


def written_once(tensors):
    """The tensors to write, and which further names mean which of them."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    kept: dict = {}
    aliases: dict = {}
    looks: dict = {}                                # (storage, spec, offset) → name
    for name, tensor in tensors.items():
        if type(name) is not str:
            raise TypeError(f"names of tensors are strings, got {name!r}")
        check_encodable("the name of a tensor", name)
        if name == "__metadata__":
            raise ValueError("'__metadata__' cannot be the name of a tensor: it is where the file keeps its metadata")
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        spec = tensor._spec
        if spec.device is META:
            raise ValueError(f"tensor `{name}` is on the meta device and has no contents to save")
        if spec.dtype not in CODE_OF:
            raise KeyError(f"tensor `{name}`: the format has no {spec.dtype}")
        if not spec.contiguous:
            raise ValueError(f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. It "
                             "either means you are trying to save tensors which are reference of each other in which "
                             "case it's recommended to save only the full tensors, and reslice at load time, or "
                             "simply call `.contiguous()` on your tensor to pack it before saving.")
        first = looks.setdefault((tensor._storage, spec, tensor._offset), name)
        if first == name:
            kept[name] = tensor
        else:
            aliases[name] = first
    check_overlaps(kept)
    return kept, aliases


def check_overlaps(tensors):
    """Refuse tensors that share some of their memory without being the same."""
    spans: dict = {}
    for name, tensor in tensors.items():
        if tensor._spec.nbytes:
            first = tensor._offset * tensor._spec.dtype.itemsize
            spans.setdefault(tensor._storage, []).append((first, first + tensor._spec.nbytes, name))
    for ranges in spans.values():
        ranges.sort()
        for (_, end, name), (start, _, other) in zip(ranges, ranges[1:]):
            if start < end:
                raise RuntimeError("Some tensors share memory, this will lead to duplicate memory on disk and "
                                   f"potential differences when loading them again: [{{'{name}', '{other}'}}]. They "
                                   "overlap without being the same; save the one that holds both, and slice it after "
                                   "loading, or save clone()s.")


# --- reading --------------------------------------------------


def load_file(filename, device="cpu", *, backend="mmap", verify=True):
    """The tensors of a file by name.

    They look at the mapped file: each page is read when it is needed, and writing to a tensor does not change the
    file. The checksums, where the file has them, are compared first, which reads all of it; `verify=False` leaves
    that out.
    """
    with safe_open(filename, "pt", device, verify=verify) as file:
        return file.all()


def load(data):
    """The tensors in the bytes of a safetensors file, by name."""
    reader = Reader(host.array_over(bytearray(data)), "the data")
    with naming(reader.name):
        reader.read_header()
        return reader.all()


class Info:
    """A tensor as the header describes it."""

    __slots__ = ("code", "shape", "start", "end")

    def __init__(self, code, shape, start, end):
        self.code, self.shape, self.start, self.end = code, shape, start, end


class Reader:
    """Tensors over the bytes of a file, each made when it is asked for."""

    def __init__(self, memory, name, device="cpu", framework="pt", verify=True):
        self.memory, self.name, self.device = memory, name, as_device(device)
        self.framework, self.verify = framework, verify
        self.infos: dict = {}
        self.notes: dict = {}
        self.sums: dict = {}
        self.aliases: dict = {}
        self.intact: set = set()                    # names whose checksum was compared
        self.start = 0                              # of the tensors' bytes

    def read_header(self):
        total = self.memory.size
        if total < 8:
            raise FileError(f"header too small: the file has {total} bytes, and the first 8 should say how long its "
                            "header is")
        size = int.from_bytes(self.memory[:8].tobytes(), "little")
        if size > MAX_HEADER_BYTES:
            raise FileError(f"header too large: {size} bytes, and {MAX_HEADER_BYTES} is the most")
        if size > total - 8:
            raise FileError(f"invalid header length: {size} bytes are announced and {total - 8} are there; the file is "
                            "truncated, or no safetensors file")
        self.start = 8 + size
        header = parsed(self.memory[8:self.start].tobytes())
        if type(header) is not dict:
            raise FileError("invalid JSON in header: it is not an object")
        self.notes = header.pop("__metadata__", None) or {}
        if type(self.notes) is not dict or not all(type(text) is str for text in self.notes.values()):
            raise FileError("invalid JSON in header: __metadata__ is not an object of strings")
        self.infos = {name: described(name, entry) for name, entry in header.items()}
        self.check_offsets(total - self.start)
        self.read_notes()

    def check_offsets(self, room):
        """The tensors have to fill the file, each beginning where another ends."""
        at = 0
        for name, info in sorted(self.infos.items(), key=lambda item: (item[1].start, item[1].end)):
            if info.start != at:
                raise FileError(f"invalid offset for tensor `{bare(name)}`: it starts at {info.start}, and what is "
                                f"before it ends at {at}")
            at = info.end
        if at != room:
            raise FileError(f"incomplete metadata, file not fully covered: the tensors take {at} bytes and {room} are "
                            "there; the file is truncated or damaged")

    def read_notes(self):
        sums, aliases = (parsed(self.notes[note].encode()) if note in self.notes else {} for note in OWN_KEYS)
        if type(sums) is not dict or type(aliases) is not dict:
            raise FileError("its checksums or aliases are damaged")
        if self.verify and CHECKSUMS_KEY in self.notes and set(sums) != set(self.infos):
            name = min(set(sums) ^ set(self.infos))
            raise FileError(f"tensor '{bare(name)}' has a checksum and is not there, or the reverse. "
                            f"{COPIED_METADATA_HINT}")
        for name, crc in sums.items() if self.verify else ():
            if type(crc) is not str or not re.fullmatch("[0-9a-f]{8}", crc):
                raise FileError(f"its checksum for {shown(name)} is damaged")
            self.sums[name] = int(crc, 16)
        for name, meant in aliases.items():
            if type(meant) is not str or meant not in self.infos:
                raise FileError(f"its alias {shown(name)} for {shown(meant)} is damaged")
            if name not in self.infos:
                self.aliases[name] = meant

    # --- what a user asks --------------------------------------------------

    def keys(self):
        """The names of the tensors, further names for one included."""
        return sorted([*self.infos, *self.aliases])

    def offset_keys(self):
        """The names in the order in which the tensors lie in the file."""
        return sorted(self.infos, key=lambda name: (self.infos[name].start, self.infos[name].end, name))

    def metadata(self):
        """What was given as `metadata` when the file was written; None if nothing was."""
        return {name: text for name, text in self.notes.items() if name not in OWN_KEYS} or None

    def get_tensor(self, name):
        """The tensor called `name`; its checksum is compared."""
        with naming(self.name):
            info = self.info(name)
            self.check(self.aliases.get(name, name))
            return self.made(info)

    def get_tensors(self, names=None):
        """The tensors of these names, or of all, in a dict."""
        return self.all() if names is None else {name: self.get_tensor(name) for name in names}

    def get_slice(self, name):
        """The tensor called `name` to be sliced: only what a slice takes is read, and no checksum is compared."""
        with naming(self.name):
            return Slice(self.made(self.info(name)), self.info(name))

    def all(self):
        """Every tensor by name; further names for one share its storage."""
        with naming(self.name):
            for name in self.offset_keys():
                self.check(name)
            found = {name: self.made(info) for name, info in self.infos.items()}
            for name, meant in self.aliases.items():
                found[name] = found[meant].detach() if self.framework == "pt" else found[meant]
            return found

    # --- one tensor --------------------------------------------------

    def info(self, name):
        found = self.infos.get(self.aliases.get(name, name))
        if found is None:
            raise FileError(f"File does not contain tensor {bare(name)}")
        return found

    def bytes_of(self, info):
        return self.memory[self.start + info.start:self.start + info.end]

    def check(self, name):
        """Compare the checksum of a tensor, where the file has one."""
        if name not in self.sums or name in self.intact:
            return
        info = self.infos[name]
        if zlib.crc32(self.bytes_of(info), described_crc(name, info.code, info.shape)) != self.sums[name]:
            raise FileError(f"tensor '{bare(name)}' is damaged: its checksum is not the one that was written. Take the "
                            f"file from where it came once more; verify=False reads it as it is. "
                            f"{COPIED_METADATA_HINT}", name)
        self.intact.add(name)

    def made(self, info):
        dtype = DTYPE_OF_CODE.get(info.code)
        if dtype is None:
            raise NotSupported(f"it holds data of {info.code}, a dtype that Flambeau does not have")
        if self.framework == "np":
            return self.bytes_of(info).view(dtype.np).reshape(info.shape)
        wanted = spec(dtype, info.shape, None, self.device)
        if self.device is META:
            return wrap(Storage.of(None, wanted.nbytes, META), wanted)
        memory = self.bytes_of(info)
        if (self.start + info.start) % dtype.itemsize:
            memory = memory.copy()                  # a file from a writer that does not align
        array = memory.view(dtype.np).reshape(info.shape)
        if self.device is not CPU:
            array = self.device.backend.from_host(array, wanted)
        return wrap(Storage.of(Value.of(array, wanted), wanted.nbytes, self.device), wanted)


class safe_open(Reader):
    """An opened safetensors file: `with safe_open(path, framework="pt") as file: file.get_tensor("weight")`.

    A tensor is made, and its checksum compared, when it is asked for.
    """

    def __init__(self, filename, framework="pt", device="cpu", *, backend="mmap", verify=True):
        known = {"pt": "pt", "torch": "pt", "pytorch": "pt", "flambeau": "pt", "np": "np", "numpy": "np"}
        if framework not in known:
            raise NotImplementedError(f"framework {framework!r}: 'pt' gives tensors, 'np' NumPy arrays")
        name = os.fspath(filename)
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            memory = host.array_over(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b"")
        super().__init__(memory, name, device, known[framework], verify)
        with naming(name):
            self.read_header()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None                                 # the mapping lives as long as a tensor looks at it


class Slice:
    """What `safe_open.get_slice` gives: indexing it gives a tensor with memory of its own size."""

    def __init__(self, tensor, info):
        self.tensor, self.described = tensor, info

    def get_shape(self):
        """The sizes, as a list."""
        return list(self.described.shape)

    def get_dtype(self):
        """The dtype by the name that the format has for it, as `F32`."""
        return self.described.code

    def __getitem__(self, index):
        found = self.tensor[index]
        return found.clone() if isinstance(found, Tensor) else found.copy()


def parsed(text):
    """The JSON in `text`; a name that stands there twice is an error."""
    def once(pairs):
        made = dict(pairs)
        if len(made) != len(pairs):
            raise FileError("invalid JSON in header: a name stands there twice")
        return made
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=once)
        if re.search(rb"\\u[dD]", text):          # half a pair: Python reads it, and can neither print nor write it
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise FileError(f"invalid JSON in header: {shown(str(error))[1:-1]}") from error


def described(name, entry):
    """The Info of one entry of the header, which has to be right in itself."""
    if type(entry) is not dict or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FileError(f"invalid JSON in header: tensor `{bare(name)}` is not described by dtype, shape and "
                        "data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(code) is not str or code not in BITS_OF_CODE:
        raise FileError(f"invalid dtype for tensor `{bare(name)}`: {shown(code)}")
    if type(shape) is not list or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise FileError(f"invalid shape for tensor `{bare(name)}`: {shown(shape)}")
    if type(offsets) is not list or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 1 << 63 for n in offsets) \
            or offsets[0] > offsets[1]:
        raise FileError(f"invalid offset for tensor `{bare(name)}`: {shown(offsets)}")
    if math.prod(shape) * BITS_OF_CODE[code] != 8 * (offsets[1] - offsets[0]):
        raise FileError(f"tensor `{bare(name)}` of {code}{shown(shape)} has {offsets[1] - offsets[0]} bytes")
    if math.prod(n or 1 for n in shape) * BITS_OF_CODE[code] >= 8 << 63:      # no bytes, and yet no such array
        raise FileError(f"invalid shape for tensor `{bare(name)}`: {shown(shape)} does not fit into memory")
    return Info(code, tuple(shape), *offsets)


# --- modules --------------------------------------------------


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Write the state of a module. Parameters that it has under several names are written once."""
    state = model.state_dict()
    if force_contiguous:
        packed: dict = {}                           # one copy of what has several names
        state = {name: packed.setdefault((tensor._storage, tensor._spec, tensor._offset), tensor.contiguous())
                 for name, tensor in state.items()}
    _, aliases = written_once(state)
    # The original library notes a name that it leaves out so, and its `load_model` understands it.
    save_file(state, filename, {**aliases, **(metadata or {})})


def load_model(model, filename, strict=True, device="cpu", *, backend="mmap"):
    """Read a file into a module; (names the file lacks, names the module lacks)."""
    state = load_file(filename, device)
    missing, unexpected = model.load_state_dict(state, strict=False)
    own = model.state_dict()
    read = {(own[name]._storage, own[name]._spec, own[name]._offset) for name in state if name in own}
    missing = {name for name in missing if (own[name]._storage, own[name]._spec, own[name]._offset) not in read}
    wrong = [f"\n    {what} key(s) in state_dict: {', '.join(map(repr, sorted(names)))}"
             for what, names in (("Missing", missing), ("Unexpected", unexpected)) if names]
    if strict and wrong:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(model).__name__}:{''.join(wrong)}")
    return missing, list(unexpected)

"""Zip archives as PyTorch writes them: stored records that start at multiples of 64 bytes, under one folder.

The reader believes nothing: every record has to lie inside the file, beside the others, with a header of its own that
agrees with the directory. Nothing is ever unpacked to disk, so a name is only a name.
"""
import struct
import zlib

from .errors import EmptyFile, FileError, NotSupported, shown

LOCAL, CENTRAL, DESCRIPTOR = b"PK\x03\x04", b"PK\x01\x02", b"PK\x07\x08"
END, END64, LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
ALIGNMENT_BYTES = 64
CHUNK_BYTES = 1 << 20           # small enough that the checksum finds in cache what is written next, or was just read
LIMIT32 = 0xFFFFFFFF            # from here on a size or an offset takes eight bytes
ZIP_FLAGS = 0x0808              # names are UTF-8; sizes and checksum follow the data
STORED, DEFLATED = 0, 8
MAXIMUM_INFLATION = 16            # compressed records may not grow to more than this many times the file,
STORAGE_SPARE_BYTES = 64 << 20    # and so many bytes for storages, which take no more than that,
STRUCTURE_SPARE_BYTES = 64 << 10  # or so many for a pickle, each byte of which may become an object


# --- writing --------------------------------------------------


class ArchiveWriter:
    """Writes records one after the other through `write`, then the directory. Nothing is held but their names."""

    def __init__(self, write, folder):
        self.write, self.folder = write, folder
        self.position = 0
        self.entries: list = []                     # (name, crc, size, offset of the header)

    def record(self, name, data):
        """Append `data` (anything with a buffer) under `name`; returns its CRC-32."""
        view = memoryview(data).cast("B")
        full = f"{self.folder}/{name}".encode()
        start, size = self.position, len(view)
        large = struct.pack("<HHQQ", 1, 16, size, size) if size >= LIMIT32 else b""
        # The field that PyTorch pads with, "FB", moves the data to the next multiple of 64.
        used = start + 30 + len(full) + len(large) + 4
        extra = large + struct.pack("<2sH", b"FB", -used % ALIGNMENT_BYTES) + b"Z" * (-used % ALIGNMENT_BYTES)
        short = LIMIT32 if large else 0
        self._put(struct.pack("<4sHHHHHIIIHH", LOCAL, 0, ZIP_FLAGS, STORED, 0, 0, 0, short, short,
                              len(full), len(extra)) + full + extra)
        crc = 0
        for at in range(0, size, CHUNK_BYTES):
            piece = view[at:at + CHUNK_BYTES]
            crc = zlib.crc32(piece, crc)
            self._put(piece)
        self._put(struct.pack("<4sIQQ" if large else "<4sIII", DESCRIPTOR, crc, size, size))
        self.entries.append((full, crc, size, start))
        return crc

    def close(self):
        """Write the directory."""
        start = self.position
        for name, crc, size, offset in self.entries:
            wide = [n for n in (size, size, offset) if n >= LIMIT32]
            extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
            short = min(size, LIMIT32)
            self._put(struct.pack("<4sHHHHHHIIIHHHHHII", CENTRAL, 0, 0, ZIP_FLAGS, STORED, 0, 0, crc, short, short,
                                  len(name), len(extra), 0, 0, 0, 0, min(offset, LIMIT32)) + name + extra)
        count, size, end = len(self.entries), self.position - start, self.position
        self._put(struct.pack("<4sQHHIIQQQQ", END64, 44, 0x031E, 45, 0, 0, count, count, size, start))
        self._put(struct.pack("<4sIQI", LOCATOR64, 0, end, 1))
        few = min(count, 0xFFFF)
        self._put(struct.pack("<4sHHHHIIH", END, 0, 0, few, few, min(size, LIMIT32), min(start, LIMIT32), 0))

    def _put(self, data):
        self.write(data)
        self.position += len(data)


# --- where bytes come from --------------------------------------------------


class Source:
    """A file, or an object that behaves like one, read at any place; begins where the object stands."""

    def __init__(self, file, name=None):
        self.file, self.name = file, name or getattr(file, "name", None)
        self.base = file.tell()
        self.size = file.seek(0, 2) - self.base
        file.seek(self.base)

    def __str__(self):
        return f"{self.name}" if isinstance(self.name, str) else "the file"

    def read(self, offset, size):
        """Exactly `size` bytes from `offset` on."""
        self._inside(offset, size)
        self.file.seek(self.base + offset)
        parts = []
        while size:
            part = self.file.read(size)
            if not part:
                raise self._ended()
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset, view, crc=None):
        """Fill `view` with the bytes from `offset` on; returns their CRC-32 where `crc` is a number to go on from."""
        self._inside(offset, len(view))
        self.file.seek(self.base + offset)
        fill = getattr(self.file, "readinto", None)
        at = 0
        while at < len(view):
            piece = view[at:at + CHUNK_BYTES]
            if fill is not None:
                got = fill(piece)
            else:
                part = self.file.read(len(piece))
                got = len(part)
                piece[:got] = part
            if not got:
                raise self._ended()
            if crc is not None:
                crc = zlib.crc32(piece[:got], crc)
            at += got
        return crc

    def _inside(self, offset, size):
        if offset < 0 or size < 0 or offset + size > self.size:
            raise FileError(f"the file is truncated: {size} bytes were expected from position {offset} on, and it has "
                            f"{self.size}")

    def _ended(self):
        return FileError("the file is truncated: it became shorter while it was read")


# --- reading --------------------------------------------------


class Record:
    """One entry of an archive: where its bytes lie, and what the directory says of them."""

    __slots__ = ("name", "raw", "header", "offset", "packed", "size", "method", "crc")

    def __init__(self, name, raw, header, packed, size, method, crc):
        self.name, self.raw = name, raw             # as text, and as its bytes in the file
        self.header = header                        # where its own header starts
        self.offset = -1                            # where its data start; known when that header was read
        self.packed, self.size, self.method, self.crc = packed, size, method, crc


class Archive:
    """The records of a zip file by name, each checked to lie inside the file and beside the others."""

    def __init__(self, source):
        self.source = source
        start, size, count = self._find_directory()
        self.records = self._directory(start, size, count)
        if not self.records:
            raise self._broken("it has no records")
        self._check_headers(start)
        self._check_inflation()
        # PyTorch writes zeros where it was told not to compute them (set_crc32_options).
        self.has_crcs = any(record.crc for record in self.records.values())

    def _broken(self, why):
        return FileError(f"the file is damaged or was cut off: failed reading zip archive: {why}")

    def _find_directory(self):
        source = self.source
        span = min(source.size, 22 + 0xFFFF)
        tail = source.read(source.size - span, span)
        at = tail.rfind(END)
        while at >= 0 and at + 22 + int.from_bytes(tail[at + 20:at + 22], "little") != span:
            at = tail.rfind(END, 0, at)
        if at < 0 or at + 22 > span:
            raise self._broken("failed finding central directory at its end")
        _, disk, first, here, count, size, start, _ = struct.unpack_from("<4sHHHHIIH", tail, at)
        end = source.size - span + at
        if end >= 20:
            locator = source.read(end - 20, 20)
            if locator.startswith(LOCATOR64):
                _, disk, where, _ = struct.unpack("<4sIQI", locator)
                record = source.read(where, 56)
                if not record.startswith(END64):
                    raise self._broken("its 64-bit directory is not where it should be")
                _, _, _, _, disk, first, here, count, size, start = struct.unpack("<4sQHHIIQQQQ", record)
                end = where
        if disk or first or here != count:
            raise self._broken("it claims to be one part of several")
        if start + size > end or count * 46 > size:
            raise self._broken(f"its directory of {count} records, {size} bytes at {start}, does not fit into the file")
        return start, size, count

    def _directory(self, start, size, count):
        data = self.source.read(start, size)
        records: dict = {}
        at = 0
        for _ in range(count):
            if at + 46 > size or data[at:at + 4] != CENTRAL:
                raise self._broken("its directory is garbled")
            (_, _, _, flags, method, _, _, crc, packed, full, name_length, extra_length, comment_length, disk, _, _,
             header) = struct.unpack_from("<4sHHHHHHIIIHHHHHII", data, at)
            name_end = at + 46 + name_length
            extra_end = name_end + extra_length
            if extra_end + comment_length > size:
                raise self._broken("its directory is garbled")
            raw = data[at + 46:name_end]
            try:
                name = raw.decode("utf-8" if flags & 0x800 else "cp437")
            except UnicodeDecodeError:
                raise self._broken("a record has a name that is not UTF-8") from None
            full, packed, header = self._wide(data[name_end:extra_end], full, packed, header, name)
            if flags & 1:
                raise NotSupported(f"record {shown(name)} is encrypted")
            if method not in (STORED, DEFLATED):
                raise NotSupported(f"record {shown(name)} is compressed by method {method}; stored and "
                                   "deflated ones are read")
            if disk or method == STORED and packed != full:
                raise self._broken(f"record {shown(name)} is {full} bytes long and takes {packed}")
            if name in records:
                raise self._broken(f"two records are called {shown(name)}")
            records[name] = Record(name, raw, header, packed, full, method, crc)
            at = extra_end + comment_length
        return records

    def _wide(self, extra, full, packed, header, name):
        """The sizes and the offset, from the 64-bit field where they do not fit into 32."""
        at, numbers = 0, [full, packed, header]
        while at + 4 <= len(extra):
            field_id, length = struct.unpack_from("<HH", extra, at)
            if field_id == 1:
                field = extra[at + 4:at + 4 + length]
                for k, number in enumerate(numbers):
                    if number == LIMIT32:
                        if len(field) < 8:
                            raise self._broken(f"record {shown(name)} lacks its 64-bit sizes")
                        numbers[k], field = int.from_bytes(field[:8], "little"), field[8:]
                break
            at += 4 + length
        return numbers

    def _check_headers(self, end):
        """Read each record's own header; records may neither overlap nor reach into the directory, at `end`."""
        in_order = sorted(self.records.values(), key=lambda record: record.header)
        for record, following in zip(in_order, [*in_order[1:], None], strict=True):
            header = self.source.read(record.header, 30 + len(record.raw))
            if not header.startswith(LOCAL):
                raise self._broken(f"record {shown(record.name)} does not start where the directory says")
            method, = struct.unpack_from("<H", header, 8)
            name_length, extra_length = struct.unpack_from("<HH", header, 26)
            if (name_length, header[30:], method) != (len(record.raw), record.raw, record.method):
                raise self._broken(f"record {shown(record.name)} and its entry in the directory disagree")
            record.offset = record.header + 30 + name_length + extra_length
            if record.offset + record.packed > (end if following is None else following.header):
                raise self._broken(f"record {shown(record.name)} overlaps what follows it")

    def _check_inflation(self):
        grown = sum(record.size for record in self.records.values() if record.method == DEFLATED)
        if grown > MAXIMUM_INFLATION * self.source.size + STORAGE_SPARE_BYTES:
            raise FileError(f"{self.source.size} bytes would unpack to {grown}: refused. PyTorch writes its records "
                            "uncompressed.")

    def read(self, record):
        """The bytes of `record`, which is not a storage, and their CRC-32."""
        if record.size > MAXIMUM_INFLATION * self.source.size + STRUCTURE_SPARE_BYTES:
            raise FileError(f"record {shown(record.name)} would unpack to {record.size} bytes in a file of "
                            f"{self.source.size}: refused. PyTorch writes its records uncompressed.", record.name)
        if record.method == STORED:
            data = self.source.read(record.offset, record.size)
            return data, zlib.crc32(data)
        data = bytearray(record.size)
        return data, self.read_into(record, memoryview(data))

    def read_into(self, record, view, check=True):
        """Fill `view`, which is as long as the record; returns the CRC-32 of what it got, if that is wanted."""
        if record.method == STORED:
            return self.source.read_into(record.offset, view, 0 if check else None)
        unpack, at, crc = zlib.decompressobj(-15), 0, 0
        try:
            for taken in range(0, record.packed, CHUNK_BYTES):
                packed = self.source.read(record.offset + taken, min(CHUNK_BYTES, record.packed - taken))
                piece = None
                while packed or len(piece) == CHUNK_BYTES:        # a full piece: there may be more without more input
                    piece = unpack.decompress(packed, CHUNK_BYTES)  # never more at a time, whatever the file promises
                    if at + len(piece) > record.size:
                        raise self._broken(f"record {shown(record.name)} unpacks to more than {record.size} bytes")
                    view[at:at + len(piece)] = piece
                    at, crc = at + len(piece), zlib.crc32(piece, crc)
                    packed = unpack.unconsumed_tail
        except zlib.error as error:
            raise self._broken(f"record {shown(record.name)} does not unpack: {error}") from error
        if at != record.size or not unpack.eof:
            raise self._broken(f"record {shown(record.name)} unpacks to {at} bytes, not {record.size}")
        return crc


def is_archive(source):
    """Whether the file starts as a zip archive does."""
    if not source.size:
        raise EmptyFile("the file is empty: Ran out of input")
    return source.size >= 4 and source.read(0, 4) == LOCAL

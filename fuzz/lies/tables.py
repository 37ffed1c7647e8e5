"""Lies for formats with columns: npy and npz, MDS, .beton, Arrow, Parquet and HDF5."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile

from fuzz.lies import DEPTHS, json_text, number, put, read_varint, varint, words


def npy(rng: random.Random, data: bytes) -> bytes:
    """Another shape or dtype in the header of an npy file, with its length corrected."""
    wide = data[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    start = 12 if wide else 10
    count = number(rng, 6, rng.choice((16, 33, 64, 70)))
    depth = rng.choice(DEPTHS)
    shape = rng.choice(
        (f"({count},)", f"({count}, 0)", f"(0, {count})", f"({count}, {count})", f"({2**62}, 4)", "()", "(2,)" * 40,
         f"(1, {'1, ' * min(depth, 3000)})", f"(-{count},)", f"({'1' * 5000},)", "(" * depth)
    )  # fmt: skip
    descr = rng.choice(
        ("'<f8'", "'|u1'", f"'<U{count}'", f"'|S{count}'", f"'|V{count}'", "'|O'", "'<M8[D]'", "'|V0'",
         f"[('a', '<f8', ({count},))]", f"[('a', '|u1', {shape})]", "[" * min(depth, 30_000),
         "[('a', " * min(depth, 5000) + "'|u1'" + ")]" * min(depth, 5000))
    )  # fmt: skip
    text = data[start : start + length].decode("latin-1")
    if rng.random() < 0.4:
        text = f"{{'descr': {descr}, 'fortran_order': {rng.random() < 0.5}, 'shape': {shape}, }}\n"
    else:
        old = text[text.index("'shape':") + 8 : text.index(")", text.index("'shape':")) + 1]
        text = text.replace(old, f" {shape}")
    body = text.encode("latin-1")
    if rng.random() < 0.1:
        return put(data, 8, "<I" if wide else "<H", number(rng, length, 32 if wide else 16))
    head = struct.pack("<I", len(body)) if wide else struct.pack("<H", len(body) & 0xFFFF)
    return data[:8] + head + body + data[start + length :]


_CENTRAL = {8: "<H", 10: "<H", 16: "<I", 20: "<I", 24: "<I", 28: "<H", 30: "<H", 32: "<H", 42: "<I"}
_LOCAL = {6: "<H", 8: "<H", 14: "<I", 18: "<I", 22: "<I", 26: "<H", 28: "<H"}
_END = {8: "<H", 10: "<H", 12: "<I", 16: "<I", 20: "<H"}
_END_64 = {4: "<Q", 24: "<Q", 32: "<Q", 40: "<Q", 48: "<Q"}
_HEADS = {b"PK\1\2": _CENTRAL, b"PK\3\4": _LOCAL, b"PK\5\6": _END, b"PK\6\6": _END_64}


def npz(rng: random.Random, data: bytes) -> bytes:
    """A number of the directory, the same size in directory and member, or a lying npy file with a correct CRC."""
    how = rng.randrange(3)
    if how == 0:
        return _archived_again(rng, data)
    places = [(at, kind) for kind in _HEADS for at in _all(data, kind)]
    at, kind = rng.choice(places)
    place, layout = rng.choice(list(_HEADS[kind].items()))
    (real,) = struct.unpack_from(layout, data, at + place)
    claimed = number(rng, real, 8 * struct.calcsize(layout))
    data = put(data, at + place, layout, claimed)
    if how == 1 and kind == b"PK\1\2" and place in (20, 24):
        (local,) = struct.unpack_from("<I", data, at + 42)
        data = put(data, local + place - 2, layout, claimed)
    return data


def _all(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def _archived_again(rng: random.Random, data: bytes) -> bytes:
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            chosen = rng.choice(old.namelist())
            for name in old.namelist():
                body = old.read(name)
                body = npy(rng, body) if name == chosen else body
                new.writestr(zipfile.ZipInfo(name), body, rng.choice((0, 8)))  # with a fixed time
            new.comment = old.comment
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        raise ValueError from None
    return out.getvalue()


def mds(rng: random.Random, data: bytes) -> bytes:
    """The count, an offset, a size within a record, or the configuration of a shard."""
    count, first = struct.unpack_from("<II", data, 0)
    end = 4 * (count + 2)
    how = rng.randrange(4)
    if how == 0:
        return put(data, 0, "<I", number(rng, count, 32))
    if how == 1:
        return words(rng, data, 4, end, "<I")
    if how == 2:
        return words(rng, data, first, len(data), "<I")
    return _with_config(data, count, end, json_text(rng, data[end:first]))


def _with_config(data: bytes, count: int, end: int, config: bytes) -> bytes:
    """A shard with a different configuration and correct offsets."""
    offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
    moved = [offset + len(config) - (offsets[0] - end) for offset in offsets]
    return data[:4] + struct.pack(f"<{count + 1}I", *moved) + config + data[offsets[0] :]


def mds_config(rng: random.Random, data: bytes) -> bytes:
    """Encodings and sizes of columns that do not match the shard."""
    count, first = struct.unpack_from("<II", data, 0)
    end = 4 * (count + 2)
    config = json.loads(data[end:first])
    if not isinstance(config, dict) or not isinstance(config.get("column_names"), list):
        raise ValueError
    size = rng.choice((0, 1, 8, -1, 1 << 31, 1 << 40, 1 << 63, None, True))
    one = rng.choice(("ndarray", "ndarray:int64:2147483647,2147483647", "ndarray:uint8:" + "1," * 999 + "1", "str",
                      "ndarray:float64:0", "ndarray::3", "pil", "int8", "str_decimal", "msgpack", "json"))  # fmt: skip
    if config["column_names"]:
        place = rng.randrange(len(config["column_names"]))
        if rng.random() < 0.7:
            config["column_encodings"][place] = one
        if rng.random() < 0.5:
            config["column_sizes"][place] = size
    if rng.random() < 0.2:
        many = 20_000
        config["column_names"] = [str(n) for n in range(many)]
        config["column_encodings"], config["column_sizes"] = ["int8"] * many, [size] * many
    return _with_config(data, count, end, json.dumps(config).encode())


def beton(rng: random.Random, data: bytes) -> bytes:
    """A number of the header, of a field's arguments, of a row or of the table, in a folded file."""
    (size,) = struct.unpack_from("<H", data, 0)
    num_fields, _, num_records = struct.unpack_from("<HIQ", data, 4)
    how = rng.randrange(5)
    if how == 0:
        place, layout = rng.choice(((2, "<H"), (4, "<H"), (6, "<I"), (10, "<Q"), (18, "<Q")))
        (real,) = struct.unpack_from(layout, data, place)
        return put(data, place, layout, number(rng, real, 8 * struct.calcsize(layout)))
    rows = 26 + 1041 * num_fields
    if how == 1:
        start = 26 + 1041 * rng.randrange(num_fields) + 17
        return words(rng, data, start, start + 264, "<Q")
    if how == 2:
        return words(rng, data, rows + rng.choice((0, 1, 5)), 2 + size, "<Q")
    return words(rng, data, max(len(data) - 24 * num_records, 2 + size), len(data), "<Q")


def arrow(rng: random.Random, data: bytes) -> bytes:
    """A number in the header of a message, the length of the header, the length before a compressed buffer, or the
    length of the footer."""
    heads = [at for at in _all(data, b"\xff\xff\xff\xff") if at % 8 == 0]
    how = rng.randrange(6)
    if how == 0 and data[-6:] == b"ARROW1":
        (length,) = struct.unpack_from("<I", data, len(data) - 10)
        return put(data, len(data) - 10, "<I", number(rng, length, 32))
    if how == 1 and data[-6:] == b"ARROW1":
        (length,) = struct.unpack_from("<I", data, len(data) - 10)
        start = len(data) - 10 - length
        return words(rng, data, -(-start // 4) * 4, len(data) - 10, rng.choice(("<I", "<Q")))
    at = rng.choice(heads)
    (length,) = struct.unpack_from("<I", data, at + 4)
    if how == 2:
        return put(data, at + 4, "<I", number(rng, length, 32))
    if how == 3:  # the number before compressed bytes is their decompressed size
        body = at + 8 + length
        places = [p for p in range(body, min(body + 4096, len(data) - 8), 8)
                  if 0 < struct.unpack_from("<q", data, p)[0] < 1 << 20]  # fmt: skip
        place = rng.choice(places)
        return put(data, place, "<Q", number(rng, struct.unpack_from("<Q", data, place)[0]))
    return words(rng, data, at + 8, at + 8 + length, rng.choice(("<I", "<Q", "<H")))


def parquet(rng: random.Random, data: bytes) -> bytes:
    """A number of the footer, of any width, with the footer's length corrected, or a number of a page's header."""
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    start = len(data) - 8 - length
    if rng.random() < 0.1:
        return put(data, len(data) - 8, "<I", number(rng, length, 32))
    if rng.random() < 0.3:
        return _other_varint(rng, data[: rng.choice((64, start))], 4) + data[start:]
    footer = _other_varint(rng, data[start:-8], 0)
    if rng.random() < 0.05:
        depth = rng.choice(DEPTHS)
        at = rng.randrange(len(footer))
        footer = (
            footer[:at]
            + rng.choice((b"\x1c", b"\x19\x1c", b"\x19\x19", b"\x1b\1\xcc")) * depth
            + footer[at:]
        )
    return data[:start] + footer + struct.pack("<I", len(footer)) + data[-4:]


def _other_varint(rng: random.Random, data: bytes, start: int) -> bytes:
    """Replaces bytes that may be a number in Thrift's compact protocol by another number."""
    at = rng.randrange(start, len(data))
    real, end = read_varint(data, at)
    return data[:at] + varint(number(rng, real)) + data[end:]


def hdf5(rng: random.Random, data: bytes) -> bytes:
    """Replaces one of the numbers that look like lengths or positions: heads of the old layout have no checksums."""
    places = [
        at
        for at in range(0, len(data) - 8, 8)
        if 0 < struct.unpack_from("<Q", data, at)[0] <= len(data)
    ]
    at = rng.choice(places)
    return put(data, at, "<Q", number(rng, struct.unpack_from("<Q", data, at)[0]))

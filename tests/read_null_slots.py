"""A program that passes valid arrays with garbage in their null slots to every verb. It prints the name of each verb
before it calls it, so that the last line identifies the cause of a signal."""

import os
import sys

import numpy as np
import pyarrow as pa

import penstock as ps

VALID = pa.py_buffer(bytes([0b1101]))
"""Four slots, of which the second is null."""


def views(type_, garbage):
    slots = np.zeros((4, 4), "<i4")
    slots[:] = (20, int.from_bytes(b"abcd", "little"), 0, 0)
    slots[1] = garbage
    buffers = [VALID, pa.py_buffer(slots.tobytes()), pa.py_buffer(b"abcd" * 5)]
    return pa.Array.from_buffers(type_, 4, buffers)


def numbers(type_, values, dtype):
    return pa.Array.from_buffers(type_, 4, [VALID, pa.py_buffer(np.array(values, dtype).tobytes())])


def dictionary(index_type, garbage):
    dtype = {pa.int8(): "i1", pa.uint64(): "u8", pa.int32(): "i4"}[index_type]
    indices = numbers(index_type, [0, garbage, 1, 0], dtype)
    return pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)


def texts():
    ends = pa.py_buffer(np.array([0, 1, 3, 4, 5], "<i4").tobytes())
    return pa.Array.from_buffers(pa.string(), 4, [VALID, ends, pa.py_buffer(b"a\xff\xfebc")])


def simple():
    yield views(pa.binary_view(), (-2_000_000_000, 0, 0, 0))
    yield views(pa.string_view(), (-1, 7, 99, -5))
    yield views(pa.binary_view(), (2_000_000_000, 7, 99, 1 << 30))
    yield views(pa.string_view(), (13, 7, 0, 18))
    yield dictionary(pa.int32(), 1 << 30)
    yield dictionary(pa.int8(), -100)
    yield dictionary(pa.uint64(), (1 << 64) - 1)
    yield texts()
    yield numbers(pa.date64(), [0, 123, 86_400_000, 0], "<i8")
    yield numbers(pa.time32("s"), [0, -5, 1, 2], "<i4")
    yield numbers(pa.timestamp("ns"), [0, -(1 << 63), 1, 2], "<i8")
    yield numbers(pa.duration("us"), [0, 1 << 62, 1, 2], "<i8")
    yield numbers(pa.decimal128(5, 2), [1, 0, -1, 1 << 62, 5, 0, 6, 0], "<i8")
    yield numbers(pa.float32(), [0, np.nan, 1, 2], "<f4")


def nested(inner):
    ends = pa.array([0, 1, 2, 3, 4], pa.int32())
    yield pa.ListArray.from_arrays(ends, inner)
    yield pa.LargeListArray.from_arrays(ends.cast(pa.int64()), inner)
    yield pa.FixedSizeListArray.from_arrays(inner, 2)
    yield pa.FixedSizeListArray.from_arrays(inner, 2, mask=pa.array([True, False]))
    yield pa.StructArray.from_arrays([inner], ["s"])
    yield pa.StructArray.from_arrays([inner], ["s"], mask=pa.array([False, True, False, True]))
    yield pa.MapArray.from_arrays(ends, pa.array(["k", "l", "m", "n"]), inner)
    yield pa.DictionaryArray.from_arrays(pa.array([0, 2, 0], pa.int32()), inner)
    yield pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), inner)
    codes = pa.array([0] * 4, pa.int8())
    yield pa.UnionArray.from_sparse(codes, [inner])
    yield pa.UnionArray.from_dense(codes, pa.array([0, 1, 2, 3], pa.int32()), [inner])
    yield pa.ListViewArray.from_arrays(ends[:4], pa.array([1, 1, 1, 1], pa.int32()), inner)


def arrays():
    yield from simple()
    negative = views(pa.string_view(), (-2_000_000_000, 0, 0, 0))
    yield from nested(negative)
    for inner in (negative, dictionary(pa.int8(), -100)):
        twice = pa.StructArray.from_arrays([inner], ["s"])
        yield pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), twice)


def words(array):
    batch = pa.record_batch([array, pa.array(range(len(array)))], ["x", "n"])
    with pa.OSFile("v.arrow", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)
    part = pa.Table.from_batches([batch]).slice(1)
    yield "scan", lambda: list(ps.open("v.arrow").scan())
    yield "take", lambda: ps.open("v.arrow").take([1, 0, 1])
    yield "item", lambda: ps.open("v.arrow")[1]
    for to in ("parquet", "msgpack", "npz", "tar", "arrow", "tfrecord", "beton", "h5", "rec"):
        yield f"convert to {to}", lambda to=to: ps.convert("v.arrow", f"c.{to}", overwrite=True)
        yield f"write {to}", lambda to=to: ps.write(batch, f"w.{to}", overwrite=True)
        yield f"write a slice as {to}", lambda to=to: ps.write(part, f"w.{to}", overwrite=True)
    yield "stats", lambda: ps.stats("v.arrow")
    yield "loader", lambda: list(ps.Loader(ps.open("v.arrow"), 2))
    yield "diff", lambda: ps.diff("v.arrow", "c.arrow")
    yield "verify", lambda: ps.verify("v.arrow")
    yield "where", lambda: ps.convert("v.arrow", "d.arrow", where='x == "abc"', overwrite=True)
    yield "append", lambda: ps.append(batch, "c.arrow")
    yield "proof", lambda: ps.convert("v.arrow", "p.parquet", prove=True, overwrite=True)
    yield "fields", lambda: ps.add_fields("v.arrow", {"y": array}, overwrite=True)
    yield "overlay", lambda: list(ps.open("v.arrow").scan())
    yield "images", lambda: ps.decode_images(array, ps.Image(size=4))


def main():
    kept = sys.stdout.fileno()
    for place, array in enumerate(arrays()):
        os.mkdir(str(place))
        os.chdir(str(place))
        for word, call in words(array):
            os.write(kept, f"{array.type}: {word}\n".encode())
            try:
                call()
            except (ps.PenstockError, OSError):
                pass  # not every format supports such a type
            except (TypeError, ValueError) as error:
                if word not in ("images", "where"):
                    raise RuntimeError(f"{array.type}: {word}") from error
        given = pa.record_batch([array], ["x"]).to_pylist()
        rows = [r["x"] for b in ps.open("v.arrow").scan(columns=["x"]) for r in b.to_pylist()]
        assert repr(rows) == repr([r["x"] for r in given]), (array.type, rows, given)
        os.chdir("..")


if __name__ == "__main__":
    main()

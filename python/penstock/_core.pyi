"""The compiled module. Its kernels work on bytes, are called once per chunk or batch, and release the GIL.

Numbers are passed as Arrow arrays, and bytes as `Buffer`. A kernel that finds a fault raises `KernelError`.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from os import PathLike
from typing import Any, Protocol, TypeAlias, final

from typing_extensions import Buffer as ReadableBuffer
from typing_extensions import disjoint_base

__all__ = [
    "ArrowArray",
    "Buffer",
    "BufferPool",
    "BytesList",
    "CacheHits",
    "Example",
    "ExamplePlan",
    "Fault",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "Fetch",
    "File",
    "FloatList",
    "Framed",
    "Frames",
    "Groups",
    "ImageRecipe",
    "Inflater",
    "Int64List",
    "KernelError",
    "Message",
    "MessageField",
    "MessageMap",
    "MsgpackFacts",
    "MsgpackPlan",
    "ObjectState",
    "Pixels",
    "PooledBuffer",
    "RemoteStore",
    "RepeatedMessage",
    "RepeatedScalar",
    "SequenceExample",
    "StoreError",
    "TarPlan",
    "Upload",
    "Values",
    "ZlibDeflater",
    "bmp_pixels",
    "buffered",
    "bytes_list",
    "change_colours",
    "decode_images",
    "decode_tensors",
    "encode_examples",
    "encode_images",
    "encode_msgpack",
    "encode_recordio",
    "encode_tar",
    "examples_at",
    "exchange",
    "frame_extent",
    "frame_records",
    "frame_values",
    "frames_at",
    "gif_pixels",
    "glue",
    "gzip_member",
    "has_fields",
    "image_orientations",
    "image_view_sizes",
    "index_file",
    "inflate_member",
    "inflate_members",
    "is_tar_head",
    "jpeg_bytes",
    "jpeg_pixels",
    "jpeg_pixels_by",
    "jpeg_shape",
    "key_of",
    "looks_like_maps",
    "make_images",
    "mask_kind",
    "member_head",
    "message_numbers",
    "mixed",
    "next_head",
    "permuted",
    "permuted_each",
    "png_bytes",
    "png_pixels",
    "probe_images",
    "read_files",
    "read_frames",
    "read_members",
    "record_draws",
    "record_keys",
    "recordio_columns",
    "recordio_payloads",
    "reencode_images",
    "reserve",
    "resize_images",
    "riegeli_head",
    "riegeli_records",
    "secure_hashes",
    "splice_fields",
    "start_sync",
    "sync_file_system",
    "tar_comment",
    "tar_end_bytes",
    "tar_fields",
    "unpack_chunks",
    "walk",
    "while_waiting",
]

class _Arrow(Protocol):
    """Any object with the Arrow C data interface, such as a pyarrow array."""

    def __arrow_c_array__(self, requested_schema: object | None = None, /) -> tuple[object, object]:
        """PyCapsules of the array's schema and data."""

@final
class ArrowArray:
    """Arrow data that Rust returns. Convert it with `pyarrow.array(x)` or `pyarrow.record_batch(x)`."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

@final
class Buffer(ReadableBuffer):
    """Immutable bytes that Rust owns or keeps alive. Slices share them, and the buffer protocol reads them."""

    @staticmethod
    def from_values(array: object) -> Buffer: ...
    @staticmethod
    def from_bytes(data: bytes) -> Buffer: ...
    def __len__(self) -> int: ...
    def slice(self, start: int, length: int) -> Buffer:
        """`length` bytes from `start`, or fewer at the end of the buffer, without copying."""

    def to_bytes(self) -> bytes: ...
    def crc32c(self, before: int = 0) -> int:
        """The CRC-32C of some earlier bytes, whose checksum is `before`, followed by these bytes."""

    def crc32(self, before: int = 0) -> int:
        """The CRC-32 (that of zip) of some earlier bytes, whose checksum is `before`, followed by these bytes."""

    @staticmethod
    def joined_crc32(first: int, second: int, second_bytes: int) -> int:
        """CRC-32 of two concatenated byte strings, from their checksums and the length of the second."""

    @staticmethod
    def join(parts: list[Buffer]) -> Buffer:
        """Concatenate buffers by copying."""

    def views(self, starts: _Arrow, lengths: _Arrow) -> ArrowArray:
        """A binary_view array of parts of these bytes, without copying. `starts` and `lengths` are uint64."""

@final
class CacheHits:
    """How many ranges were read from a cache."""

    def __new__(cls) -> CacheHits: ...
    @property
    def count(self) -> int: ...

@final
class File:
    """A local file, read by position. Its bytes may also be in the blocks of a cache."""

    def __new__(cls, path: str | PathLike[str]) -> File: ...
    @staticmethod
    def of_blocks(prefix: str | PathLike[str], key: bytes, size: int, hits: CacheHits) -> File:
        """An object whose blocks are in the files of a cache: `prefix` and a number. A read raises OSError if a block
        is not there or not what was written."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> Buffer:
        """`length` bytes from `start`, or fewer at the end of the file."""

    def gather(self, starts: _Arrow, lengths: _Arrow) -> Buffer:
        """Ranges of the file, one after another in one buffer. `starts` and `lengths` are uint64."""

    def state(self) -> tuple[int, int]:
        """The current size of the open file, and the time of its last change in nanoseconds."""

    def map(self) -> Buffer:
        """The whole file as a memory map. If the file is truncated later, access to it kills the process."""

    def populate(self, mapped: Buffer) -> bool:
        """Load a part of the mapped file into memory. False if the file is now too short for it."""

@final
class Fault:
    """A fault that a kernel found. `byte` is its offset in the file, or in the uncompressed stream."""

    def __new__(
        cls,
        kind: str,
        byte: int,
        message: str,
        expected: int | None = None,
        found: int | None = None,
    ) -> Fault: ...
    @property
    def kind(self) -> str: ...
    @property
    def byte(self) -> int: ...
    @property
    def record(self) -> int | None: ...
    @property
    def field(self) -> str | None: ...
    @property
    def frame(self) -> int | None: ...
    @property
    def expected(self) -> int | None: ...
    @property
    def found(self) -> int | None: ...
    @property
    def message(self) -> str: ...

class KernelError(ValueError):
    """Raised by a kernel that finds a fault."""

    args: tuple[Fault]

@final
class Frames:
    """The positions of records in one buffer."""

    @property
    def base(self) -> int:
        """The offset of the buffer in its file or stream."""

    @property
    def buffer(self) -> Buffer:
        """The buffer of the records."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all payloads."""

    def __len__(self) -> int: ...
    def __getitem__(self, range: slice, /) -> Frames: ...
    def payload(self, record: int) -> bytes: ...
    def starts(self) -> ArrowArray:
        """The offset of each frame in its file, uint64."""

    def lengths(self) -> ArrowArray:
        """The bytes of each payload, uint64."""

    def checksums(self) -> ArrowArray:
        """The stored checksum of each record, uint32."""

    def select(self, records: _Arrow) -> Frames:
        """The records with these numbers (uint64), in this order."""

    def verify(self, indexed: _Arrow | None = None) -> list[Fault]:
        """Compare payloads with their stored checksums and with the checksums of an index (uint32)."""

    def prove(self, indexed: _Arrow | None = None) -> None:
        """Verify like `verify`, and raise the first fault."""

    def views(self, check: bool = False, indexed: _Arrow | None = None) -> ArrowArray:
        """The payloads as a binary_view array, without copying. With `check`, they are verified first."""

    def decode(
        self, plan: ExamplePlan, check: bool = False, indexed: _Arrow | None = None
    ) -> ArrowArray:
        """Decode the payloads as Examples: a struct array with a field for each column of the plan. With `check`,
        they are verified first. Large batches of scattered records are decoded on several threads."""

    def infer(self) -> dict[str, Any]:
        """Facts for a schema, if the payloads are Examples."""

_Column: TypeAlias = tuple[str, bytes, bool, str | None, str, int, str, bool, list[object] | None]

@final
class ExamplePlan:
    """Which columns to decode, made once for many batches. A column is (name, key, in_lists, kind, layout, size,
    strings, required, default): see `penstock.payloads.example.plans.Wire`."""

    def __new__(
        cls, columns: list[_Column], dialect: str, complete: bool = False
    ) -> ExamplePlan: ...

@final
class Framed:
    """Encoded frames, with the facts about each that an index keeps."""

    @property
    def data(self) -> Buffer:
        """The frames in one buffer; a copy if they are in several pieces."""

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers of the frames: one with encoded bytes, and those of large values, which are not copied."""

    @property
    def pieces(self) -> list[tuple[int, int, int]]:
        """The bytes of the frames in order, as pieces of buffers: (number of the buffer, start, end)."""

    @property
    def num_bytes(self) -> int: ...
    @property
    def lengths(self) -> ArrowArray:
        """The bytes of each whole frame, uint64."""

    @property
    def checksums(self) -> ArrowArray:
        """The masked checksum of each payload, uint32."""

@final
class Inflater:
    """Inflates a gzip file of any number of members, or a zlib stream, in pieces."""

    def __new__(
        cls, container: str, point_bytes: int = 0, join_streams: bool = False
    ) -> Inflater: ...
    @staticmethod
    def at_point(container: str, compressed_bit: int, plain_start: int, window: bytes) -> Inflater:
        """Continue from a seek point. Push the bytes from `compressed_bit // 8` on."""

    def push(
        self,
        data: Buffer,
        at_end: bool,
        out_bytes: int,
        prefix: Buffer | None = None,
        more: Buffer | None = None,
    ) -> tuple[Buffer, int]:
        """Inflate `data` and then `more`. Returns a copy of `prefix` followed by up to `out_bytes` plain bytes, and how
        many input bytes were used."""

    @property
    def finished(self) -> bool: ...
    @property
    def compressed_bytes(self) -> int: ...
    @property
    def plain_bytes(self) -> int: ...
    @property
    def num_members(self) -> int: ...
    @property
    def num_empty_members(self) -> int: ...
    def take_members(self) -> list[tuple[int, int]]: ...
    def take_points(self) -> list[tuple[int, int, bytes]]:
        """Seek points found since the last call: (compressed_bit, plain_start, window)."""

    def take_findings(self) -> list[Fault]: ...

@final
class ZlibDeflater:
    """Writes one zlib stream, or one gzip member, in pieces."""

    def __new__(cls, level: int, gzip: bool = False) -> ZlibDeflater: ...
    def push(self, plain: Buffer) -> Buffer:
        """Add plain bytes, and return the compressed bytes that are ready, often none."""

    def finish(self) -> Buffer:
        """End the stream, and return the last compressed bytes."""

def start_sync(fd: int, start: int, length: int) -> None:
    """Ask the system to start writing these bytes of a file to disk, and return before it has finished."""

def exchange(one: str, other: str) -> bool:
    """Swap the names of two files or folders in one step. False if the system or the file system has no such call."""

def sync_file_system(fd: int) -> bool:
    """Write all unsaved data of a file system to its disk. `fd` is an open file or folder of that file system. Raises
    OSError if writing has failed since `fd` was opened. Returns False if the system has no such call."""

def reserve(fd: int, start: int, length: int) -> bool:
    """Reserve disk space for these bytes of a file without changing its size, if that makes writing faster. Returns
    whether it was done."""

def walk(
    name: str, buffer: Buffer, base: int, max_record: int, last: bool = True
) -> tuple[Frames, int, int, Fault | None]:
    """Find the frames of a buffer: (frames, bytes consumed, total bytes of the next frame, fault).
    `last` means that the stream of frames ends at the end of the buffer."""

def read_frames(
    name: str, file: File, start: int, length: int, max_record: int
) -> tuple[Frames, int, int, Fault | None, int]:
    """Read a part of a local file and find its frames: the results of `walk`, and the number of bytes read."""

def read_members(file: File, start: int, length: int, fields: set[str]) -> tuple[Buffer, bool]:
    """A part of a local tar archive that begins with a header. The contents of members without these fields may be
    any bytes, if reading around them takes less time than reading them: the second value says whether it does."""

def frames_at(name: str, buffer: Buffer, starts: _Arrow, lengths: _Arrow, places: _Arrow) -> Frames:
    """The frames at positions from an index (uint64: start in the buffer, total length, offset in the file). If there
    is no such frame at a position, the fault has the kind "stale"."""

def examples_at(
    name: str,
    file: File,
    mapped: Buffer | None,
    starts: Buffer,
    checksums: Buffer,
    records: bytes,
    max_record: int,
    plan: ExamplePlan,
    check: bool,
) -> ArrowArray | None:
    """Read and decode Examples by their numbers (`records`, int64). `starts` (uint64) has the start of each record of
    the file and the end of the last one, `checksums` (uint32) the checksum of each in the index; all are little-endian.
    `max_record` is the maximum size of a frame. None if anything is wrong."""

def next_head(name: str, buffer: Buffer, start: int) -> tuple[int, int] | None:
    """Find the first valid frame header at or after `start`: (offset, bytes of the whole frame)."""

def frame_extent(
    name: str, read: Callable[[int, int], Buffer], start: int, checksum: bool
) -> tuple[int | None, int, Fault | None]:
    """Find the end of the frame at `start` without reading the whole frame into memory. Returns (end, checksum, fault).

    `end` is None if the stream ends inside the frame. The checksum is the one that an index stores, or 0 unless
    `checksum` is set. `read(start, length)` returns bytes of the stream, fewer only at its end."""

def index_file(
    name: str, file: File, max_record: int, start: int = 0, goal: int = ...
) -> tuple[ArrowArray, ArrowArray, Fault | None]:
    """Index a local file by its frame headers: (starts of all frames and end of the last one, stored checksums, fault).

    It begins at the frame at `start`, and ends with the frame that completes `goal` bytes."""

def decode_tensors(
    plan: ExamplePlan, payloads: list[bytes] | Frames | _Arrow, sparse: list[int]
) -> list[tuple[Any, Any, Any]]:
    """Decode Examples to the parts of arrays. For each column of the plan: (values, ends of lists or None, ends of
    lists of frames or None), or (values, indices, longest lists) if its number is in `sparse`. Numbers are returned in
    a bytearray, or as Values if there are many; strings in a list."""

def encode_examples(batch: _Arrow, kind: str) -> Framed:
    """Encode the records of a batch as framed messages of kind "example" or "sequence"."""

def frame_records(records: _Arrow) -> Framed:
    """Frame byte strings, each of which is a record."""

def splice_fields(
    frames: Frames,
    fields: _Arrow | None = None,
    kind: str = "example",
    *,
    drop: list[str] = ...,
    rename: list[tuple[str, str]] = ...,
    replace: bool = False,
    verify: bool = True,
) -> tuple[Framed, list[int]]:
    """Change the fields of existing messages of kind "example" or "sequence" without parsing their values.

    First fields are dropped, then renamed, and then `fields` are appended (one row for each record, columns as for
    `encode_examples`; a null adds nothing). If a key exists already, that is a fault of kind "schema", or with
    `replace` the old entry is removed. With `verify`, old payloads are verified. Without it, they are verified only
    if entries are removed or renamed; damage in other payloads stays detectable by the new checksums.

    Returns the new frames, and how many records had each name of `drop`, and then of `rename`."""

def has_fields(frames: Frames, names: list[str], kind: str) -> ArrowArray:
    """Which records have which fields: a struct array with a bool column for each name."""

def inflate_member(data: Buffer, start: int, length: int, max_bytes: int) -> Buffer:
    """Inflate one whole gzip member."""

def inflate_members(data: Buffer, members: list[tuple[int, int]], max_bytes: int) -> Buffer:
    """Inflate whole gzip members, given as (start, length), into one buffer."""

def unpack_chunks(
    data: Buffer,
    chunks: list[tuple[int, int]],
    filters: list[str],
    chunk_bytes: int,
    width: int,
    threads: int,
) -> Buffer:
    """Decompress chunks of an HDF5 dataset, which are one after another in `data`. Each is given as (bytes, mask of
    skipped filters). A fault has the number of its chunk as `record`."""

def gzip_member(plain: Buffer, start: int, length: int, num_records: int, level: int) -> Buffer:
    """Compress a part of `plain` as a gzip member, with its size and number of records in its header."""

def member_head(data: Buffer, at: int) -> tuple[int, int] | None:
    """Bytes and records of the gzip member at `at`, or None if penstock did not write it."""

@final
class Pixels:
    """Decoded pixels. `numpy.asarray(x)` is a writable uint8[len(x)] without a copy."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

@final
class ImageRecipe:
    """How images are cropped, resized, mirrored and written. `crop` is "whole", "center", "random" or "letterbox".

    `table` maps each of the 256 values of red, green and blue to an output value of two or four bytes. `deep` does the
    same for the 65,536 values of 16-bit images. Without it, such images are reduced to 8 bits. `pad` means that a crop is
    not resized, and is the padding before it. `jitter` has the ranges of brightness, contrast, saturation and hue.
    `interpolation` is "bilinear", "bicubic", "lanczos" or "nearest". `grey` makes one channel, of the first of `table`."""

    def __new__(
        cls,
        *,
        size: tuple[int, int] | None,
        crop: str,
        flip: bool,
        exact: bool,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        center_fraction: float,
        table: bytes | None = None,
        deep: bytes | None = None,
        planes: bool = False,
        upside_down: bool = False,
        fill: bytes | None = None,
        mask_fill: int = 0,
        exif: bool = False,
        pad: int | None = None,
        jitter: list[tuple[float, float] | None] | None = None,
        jitter_probability: float = 1.0,
        grayscale: float = 0.0,
        interpolation: str = "bilinear",
        grey: bool = False,
    ) -> ImageRecipe: ...
    def jitter(self, key: int) -> list[tuple[str, float]]:
        """The changes of colours for a key, in their order: their names and factors. That of the hue is a number of
        turns."""

    def view(self, width: int, height: int, key: int) -> tuple[float, float, float, float, bool]:
        """Left, top, width and height of the crop, and whether it is mirrored."""

    def views(self, sizes: _Arrow, keys: _Arrow) -> ArrowArray:
        """The crop of each image. `sizes` is a struct array of width and height. Returns a struct array of left, top,
        width, height, new_width and new_height without the margin, margin_left, margin_top (float64), flip and
        upside_down, null if the size is null."""

def record_draws(batch: _Arrow, seed: int) -> ArrowArray:
    """A number for each record, computed from its values and a seed, as uint64. Columns of numbers must be 64-bit."""

def secure_hashes(batch: _Arrow, key: bytes) -> ArrowArray:
    """The 128-bit BLAKE3 hash of each record of a batch, keyed with 32 bytes, as binary[16]. Columns of numbers must be
    64-bit."""

@final
class Groups:
    """Numbers for equal records, in the order in which they are first seen."""

    def __new__(cls) -> Groups: ...
    def __len__(self) -> int: ...
    def numbers(self, hashes: _Arrow) -> ArrowArray:
        """The group of each record, given by its hash, as int64. A group that is new gets the next number."""

def glue(array: _Arrow) -> ArrowArray:
    """Join the head (binary) and the body (binary_view) of each row of a struct array: a binary array."""

def image_view_sizes(images: _Arrow, image_pixels: int, exif: bool = False) -> ArrowArray:
    """A struct array with width and height (uint32) of each image, null if they are unknown. With `exif`, they are those
    of the upright image."""

def make_images(
    images: _Arrow,
    keys: _Arrow,
    recipe: ImageRecipe,
    out: Any,
    *,
    main: _Arrow | None = None,
    mask: tuple[int, bool] | None = None,
    shape: tuple[int, int, int] | None = None,
    deep: bool = False,
    image_pixels: int,
    damage: str = "error",
    threads: int = 1,
) -> list[tuple[int, Fault, bool]]:
    """Decode images, crop and resize them, and write them into the NumPy array `out`. Returns the damaged images as
    (index, fault, whether a part of the image was written).

    `main` has the width and height of other images, whose crop and flip these images get. `mask` means that the images
    are masks, and has their number of channels and whether they have 16 bits. `shape` means that the images are pixels,
    not files, of this height, width and number of channels; with `deep`, each value has two bytes."""

def mask_kind(images: _Arrow, image_pixels: int) -> tuple[int, bool]:
    """The number of channels (1 or 3) of the first mask with a valid header, and whether any mask has 16 bits."""

@final
class BufferPool:
    """Reused memory. It keeps at most `most_bytes` of unused memory."""

    def __new__(cls, most_bytes: int) -> BufferPool: ...
    def take(self, num_bytes: int) -> PooledBuffer:
        """This many bytes, not initialised."""

    @property
    def free_bytes(self) -> int: ...
    def __reduce__(self) -> tuple[type[BufferPool], tuple[int]]: ...

@final
class PooledBuffer:
    """Memory of a pool. `numpy.asarray(x)` is a writable uint8[len(x)] without a copy. The memory returns to the pool
    when the last array that uses it is gone."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

def image_orientations(images: _Arrow) -> ArrowArray:
    """The EXIF orientation of each image, 1 to 8 (uint8). It is 1 if the image has no valid EXIF."""

def probe_images(images: _Arrow) -> ArrowArray:
    """Read the headers of images in a binary array: a struct array of codec (string), width, height (uint32) and
    channels (uint8)."""

def decode_images(
    images: _Arrow,
    *,
    mode: str = "rgb",
    image_pixels: int,
    batch_bytes: int,
    allow_damaged: bool = False,
    threads: int = 1,
) -> tuple[Pixels, ArrowArray]:
    """Decode images: their pixels, one image after another, and a struct array of width, height and channels. A null
    has no pixels."""

def jpeg_pixels_by(
    data: bytes,
    *,
    by_parts: bool,
    channels: int = 3,
    part: int = 1,
    region: tuple[int, int, int, int] | None = None,
    allow_damaged: bool = False,
) -> Pixels | None:
    """Decode a JPEG with one of two decoders, for tests that compare them. With `by_parts`, penstock's Huffman decoder
    and parts of libjpeg do it, and None means that they do not support the file. Otherwise TurboJPEG does it.

    The image is decoded at 1/`part` of its size, and `region` (left, top, width, height) is a part of that image."""

def encode_images(
    pixels: list[Any],
    sizes: _Arrow,
    codec: str,
    *,
    quality: int = 90,
    lossless: bool = False,
    threads: int = 1,
) -> ArrowArray:
    """Encode images: a binary array. `pixels` are arrays of uint8 with one image or several, one after another.
    `sizes` is a record batch of width and height (uint32) and channels (uint8)."""

def reencode_images(
    images: _Arrow,
    *,
    codec: str | None = None,
    quality: int | None = None,
    lossless: bool = False,
    max_side: int | None = None,
    mode: str = "stored",
    image_pixels: int,
    allow_damaged: bool = False,
    threads: int = 1,
) -> ArrowArray:
    """Encode images again, smaller or with another codec or quality. An image that needs no change keeps its bytes."""

def riegeli_records(
    buffer: Buffer,
    starts: _Arrow,
    lengths: _Arrow,
    offsets: _Arrow,
    counts: _Arrow,
    sizes: _Arrow,
    max_record: int,
    max_chunk: int,
    check: bool = True,
) -> Frames:
    """The records of some chunks of a Riegeli file, in the order of the chunks.

    uint64 arrays describe the chunks: start in the buffer, maximum number of bytes, start in the file, number of
    records, and bytes of all records. Headers are always verified, and data with `check`."""

def riegeli_head(buffer: Buffer, offset: int) -> tuple[int, int, int, int]:
    """Parse the header of the chunk at the front of a buffer, which is byte `offset` of its file: (kind, bytes of data,
    number of records, bytes of all records)."""

def message_numbers(frames: Frames, fields: list[int]) -> tuple[ArrowArray, ArrowArray, ArrowArray]:
    """The values of three fields in records that are small messages of varints: uint64 arrays, 0 for a missing
    field."""

@final
class TarPlan:
    """Which fields of a tar archive to read, made once for many batches. A field is (name, contents); the contents are
    "bytes", "views" (bytes as views into the frames), "text" or "number". With `keys`, the keys of the records are the
    first column."""

    def __new__(
        cls, fields: list[tuple[str, str]], keys: bool, complete: bool = False
    ) -> TarPlan: ...
    def decode(self, frames: Frames) -> ArrowArray:
        """The columns of some records: a struct array."""

def encode_tar(keys: _Arrow, batch: _Arrow) -> Framed:
    """Encode columns of byte strings as tar records with these keys. Fields have the names and order of the columns."""

def is_tar_head(buffer: Buffer) -> bool:
    """Whether these bytes may be the beginning of a tar archive."""

def tar_comment(text: str) -> Buffer:
    """The global PAX header with a comment, padded."""

def tar_end_bytes(frames: Frames) -> ArrowArray:
    """For each record, how many of its last bytes are the zeros that end an archive (uint64)."""

def tar_fields(frames: Frames, most: int) -> dict[str, int]:
    """The fields of some records, at most `most` fields, each with the number of records that have it."""

@final
class MsgpackFacts:
    """Facts about some MessagePack records, for a schema."""

    def __new__(cls) -> MsgpackFacts: ...
    def see(self, frames: Frames, nesting: int) -> None:
        """Add records, whose containers may be nested `nesting` levels deep."""

    @property
    def num_records(self) -> int: ...
    def columns(self) -> ArrowArray | None:
        """A batch without records that has the columns of the records. Its metadata `penstock.msgpack` has facts that
        the types cannot express. None if the records are not maps of fields."""

@final
class MsgpackPlan:
    """Which columns of MessagePack maps to decode, made once for many batches: those of a batch without records, such
    as `MsgpackFacts.columns`."""

    def __new__(
        cls, columns: _Arrow, nesting: int, blanks: int, complete: bool = False
    ) -> MsgpackPlan: ...
    def decode(
        self, frames: Frames, check: bool = False, indexed: _Arrow | None = None
    ) -> ArrowArray:
        """Decode records to columns: a struct array. With `check`, they are verified first."""

def encode_msgpack(batch: _Arrow) -> Framed:
    """Encode the records of a batch as MessagePack maps."""

def frame_values(records: _Arrow) -> Framed:
    """Frame byte strings, each of which is one MessagePack value."""

def looks_like_maps(frames: Frames) -> bool:
    """Whether records are almost certainly MessagePack maps of the same fields."""

def recordio_payloads(
    frames: Frames, lend: bool, check: bool = False, indexed: _Arrow | None = None
) -> ArrowArray:
    """RecordIO payloads as a binary array. With `lend`, they are a binary_view array, and only records of several parts
    are copied. With `check`, the payloads are verified first."""

def recordio_columns(
    frames: Frames,
    columns: list[str],
    num_labels: int | None,
    lend: bool,
    check: bool = False,
    indexed: _Arrow | None = None,
) -> ArrowArray:
    """The requested columns of label, id, id2 and image, in this order, as a struct array. `num_labels` is 0 if labels
    are single numbers, the length if they are lists of a fixed size, or None if they are other lists. With `lend`,
    images are binary_view, not binary."""

def encode_recordio(bodies: _Arrow, headers: _Arrow | None = None) -> Framed:
    """Encode byte strings as RecordIO frames, each after the header (label, id, id2) of the same row."""

def read_files(
    folder: str, names: list[str], expected_bytes: int, most_bytes: int
) -> tuple[Buffer, list[int], list[int]]:
    """Read whole files of a folder into one buffer. Also returns the length of each, and the time of its last change
    in nanoseconds, taken after it was read. A file may have at most `most_bytes`."""

def bytes_list(array: object) -> list[bytes | None]:
    """The values of a binary array, None for null, copied without the GIL."""

def permuted(num_records: int, key0: int, key1: int, start: int, stop: int) -> ArrowArray:
    """The numbers at positions start to stop of a permutation of 0 to num_records - 1, which two keys choose, as
    int64."""

def permuted_each(num_records: _Arrow, key0: int, keys: _Arrow, positions: _Arrow) -> ArrowArray:
    """For each row, the number at a position of a permutation, which `key0` and the row's key choose, as int64.
    num_records, keys and positions are uint64."""

def buffered(num_records: int, size: int, key: int, start: int, stop: int) -> ArrowArray:
    """Simulate a shuffle buffer of `size` records for a stream of num_records. Returns the stream positions, int64, of
    the records that leave the buffer at steps start to stop."""

def mixed(
    weights: list[int], key: int, origin: int, length: int, start: int, stop: int
) -> tuple[ArrowArray, list[int]]:
    """The number of the dataset (uint32) at positions start to stop of an epoch of a mixture, and how many records of
    each dataset come before `start`. All earlier epochs together have `origin` positions. Weights are integers, at
    least one is above 0, and their sum is less than 2^40."""

def key_of(numbers: list[int]) -> int:
    """A 64-bit key computed from 64-bit numbers and their order."""

def record_keys(seed: int, epoch: int, records: _Arrow) -> ArrowArray:
    """The key of (seed, epoch, record) for each record, as uint64. Records are int64 or uint64."""

# The messages of tf.train, whose methods have protobuf's names.

@final
class MessageField:
    """Name and number of a field."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...

@disjoint_base
class Message:
    """The base class of all messages."""

    def SerializeToString(self, *, deterministic: bool | None = None) -> bytes: ...
    def SerializePartialToString(self, *, deterministic: bool | None = None) -> bytes: ...
    def ParseFromString(self, data: object) -> int: ...
    def MergeFromString(self, data: object) -> int: ...
    def MergeFrom(self, other: object) -> None: ...
    def CopyFrom(self, other: object) -> None: ...
    def Clear(self) -> None: ...
    def ClearField(self, name: str | bytes) -> None: ...
    def HasField(self, name: str | bytes) -> bool: ...
    def WhichOneof(self, name: str) -> str | None: ...
    def ListFields(self) -> list[tuple[MessageField, Any]]: ...
    def ByteSize(self) -> int: ...
    def IsInitialized(self) -> bool: ...
    def FindInitializationErrors(self) -> list[str]: ...
    def SetInParent(self) -> None: ...
    def DiscardUnknownFields(self) -> None: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __copy__(self) -> Any: ...
    def __deepcopy__(self, memo: object) -> Any: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: dict[str, bytes]) -> None: ...

@final
class RepeatedScalar:
    """The values of a BytesList, FloatList or Int64List: a live view that behaves like a list."""

    def __len__(self) -> int: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def __getitem__(self, key: int | slice, /) -> Any: ...
    def __setitem__(self, key: int | slice, value: Any, /) -> None: ...
    def __delitem__(self, key: int | slice, /) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def append(self, value: object) -> None: ...
    def extend(self, values: Iterable[Any]) -> None: ...
    def MergeFrom(self, values: Iterable[Any]) -> None: ...
    def insert(self, index: int, value: object) -> None: ...
    def pop(self, index: int = ...) -> Any: ...
    def remove(self, value: object) -> None: ...
    def reverse(self) -> None: ...
    def sort(self, **options: Any) -> None: ...
    def clear(self) -> None: ...
    def __copy__(self) -> list[Any]: ...
    def __deepcopy__(self, memo: object) -> list[Any]: ...
    def __reduce__(self) -> Any: ...

@final
class RepeatedMessage:
    """The features of a FeatureList: a live view that behaves like a list, and copies features added to it."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: int | slice, /) -> Any: ...
    def __setitem__(self, key: int | slice, value: Any, /) -> None: ...
    def __delitem__(self, key: int | slice, /) -> None: ...
    def __iter__(self) -> Iterator[Feature]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def add(self, **fields: Any) -> Feature:
        """Add a new feature with these fields."""

    def append(self, value: object) -> None: ...
    def extend(self, values: Iterable[Any]) -> None: ...
    def MergeFrom(self, values: Iterable[Any]) -> None: ...
    def insert(self, index: int, value: object) -> None: ...
    def pop(self, index: int = ...) -> Feature: ...
    def remove(self, value: object) -> None: ...
    def reverse(self) -> None: ...
    def sort(self, **options: Any) -> None: ...
    def clear(self) -> None: ...
    def __deepcopy__(self, memo: object) -> list[Feature]: ...
    def __reduce__(self) -> Any: ...

@final
class MessageMap:
    """The messages of Features or FeatureLists by name: a live view that behaves like a dict. Reading a missing key
    creates an empty message."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: str | bytes, /) -> Any: ...
    def __setitem__(self, key: str | bytes, value: object, /) -> None:
        """Store a copy of the message. protobuf refuses this."""

    def __delitem__(self, key: str | bytes, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def get(self, key: str | bytes, default: Any = None) -> Any: ...
    def get_or_create(self, key: str | bytes) -> Any: ...
    def setdefault(self, key: str | bytes, default: object = None) -> Any:
        """The message of a key; if it is missing, a copy of the default, which is stored (protobuf refuses that)."""

    def update(self, other: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Copy the messages of a mapping, replacing messages with the same keys."""

    def MergeFrom(self, other: MessageMap) -> None: ...
    def pop(self, key: str | bytes, default: object = None) -> Any:
        """Remove and return a message, or return an empty message if the key is missing."""

    def popitem(self) -> tuple[str, Any]: ...
    def clear(self) -> None: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[Any]: ...
    def items(self) -> ItemsView[str, Any]: ...
    def __deepcopy__(self, memo: object) -> dict[str, Any]: ...

@final
class Example(Message):
    """One record: its features, by name."""

    def __new__(cls, *args: Any, features: Any = None, **unknown: Any) -> Example: ...
    @staticmethod
    def FromString(data: object) -> Example: ...
    @property
    def features(self) -> Features: ...

@final
class SequenceExample(Message):
    """A record of several steps: features of the whole record, and lists with a feature for each step."""

    def __new__(
        cls, *args: Any, context: Any = None, feature_lists: Any = None, **unknown: Any
    ) -> SequenceExample: ...
    @staticmethod
    def FromString(data: object) -> SequenceExample: ...
    @property
    def context(self) -> Features: ...
    @property
    def feature_lists(self) -> FeatureLists: ...

@final
class Features(Message):
    """Features by name."""

    def __new__(cls, *args: Any, feature: Any = None, **unknown: Any) -> Features: ...
    @staticmethod
    def FromString(data: object) -> Features: ...
    @property
    def feature(self) -> MessageMap: ...

@final
class FeatureLists(Message):
    """Lists of features by name."""

    def __new__(cls, *args: Any, feature_list: Any = None, **unknown: Any) -> FeatureLists: ...
    @staticmethod
    def FromString(data: object) -> FeatureLists: ...
    @property
    def feature_list(self) -> MessageMap: ...

@final
class FeatureList(Message):
    """Features, one for each step."""

    def __new__(cls, *args: Any, feature: Any = None, **unknown: Any) -> FeatureList: ...
    @staticmethod
    def FromString(data: object) -> FeatureList: ...
    @property
    def feature(self) -> RepeatedMessage: ...

@final
class Feature(Message):
    """Values of one kind: bytes, floats or whole numbers."""

    def __new__(
        cls,
        *args: Any,
        bytes_list: Any = None,
        float_list: Any = None,
        int64_list: Any = None,
        **unknown: Any,
    ) -> Feature: ...
    @staticmethod
    def FromString(data: object) -> Feature: ...
    @property
    def bytes_list(self) -> BytesList: ...
    @property
    def float_list(self) -> FloatList: ...
    @property
    def int64_list(self) -> Int64List: ...

@final
class BytesList(Message):
    """Byte strings."""

    def __new__(cls, *args: Any, value: Any = None, **unknown: Any) -> BytesList: ...
    @staticmethod
    def FromString(data: object) -> BytesList: ...
    @property
    def value(self) -> RepeatedScalar: ...

@final
class FloatList(Message):
    """32-bit floats."""

    def __new__(cls, *args: Any, value: Any = None, **unknown: Any) -> FloatList: ...
    @staticmethod
    def FromString(data: object) -> FloatList: ...
    @property
    def value(self) -> RepeatedScalar: ...

@final
class Int64List(Message):
    """64-bit whole numbers."""

    def __new__(cls, *args: Any, value: Any = None, **unknown: Any) -> Int64List: ...
    @staticmethod
    def FromString(data: object) -> Int64List: ...
    @property
    def value(self) -> RepeatedScalar: ...

@final
class Values:
    """An array that Rust made. `numpy.asarray(x)` returns it without a copy."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

def jpeg_pixels(
    contents: bytes,
    *,
    channels: int,
    ratio: int,
    fancy: bool,
    fast: bool,
    recover: bool,
    fraction: float,
    image_pixels: int,
    window: tuple[int, ...] | None = None,
) -> Values:
    """Decode a JPEG. `window` is top, left, height and width."""

def jpeg_shape(contents: bytes) -> tuple[int, int, int]:
    """Height, width and channels of a JPEG."""

def png_pixels(contents: bytes, *, channels: int, wide: bool, image_pixels: int) -> Values:
    """Decode a PNG to pixels of 8 bits, or of 16 bits if `wide`."""

def bmp_pixels(contents: bytes, *, channels: int, image_pixels: int) -> Values:
    """Decode a BMP."""

def gif_pixels(contents: bytes, *, first_only: bool, image_pixels: int) -> Values:
    """Decode the frames of a GIF."""

def jpeg_bytes(
    image: object,
    *,
    quality: int,
    progressive: bool,
    optimize: bool,
    chroma_downsampling: bool,
    density_unit: int,
    x_density: int,
    y_density: int,
    xmp: bytes,
) -> bytes:
    """Encode a uint8 image as a JPEG."""

def png_bytes(image: object, *, level: int | None = None) -> bytes:
    """Encode a uint8 or uint16 image as a PNG."""

def resize_images(
    images: object, height: int, width: int, method: str, antialias: bool = False
) -> Values:
    """Resize an image or a batch: to float32, or with the same dtype by "nearest"."""

def change_colours(images: object, change: str, amount: float = 0.0) -> Values:
    """Change pixels of three floats: "to_hsv", "from_hsv", "hue" or "saturation"."""

class StoreError(Exception):
    """Something could not be done in a store. Its arguments are kind, message, key, start, end, tries and seconds.

    The kind is "missing", "changed", "denied", "exists", "deadline", "unsupported" or "other". `start` and
    `end` are None where no range was asked for. No argument holds a query string, a header or a secret.
    """

@final
class ObjectState:
    """What identifies one state of an object. Equal states are equal, and can be pickled."""

    def __new__(
        cls,
        size: int,
        etag: str | None = None,
        version: str | None = None,
        modified_ms: int | None = None,
    ) -> ObjectState: ...
    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str | None:
        """With its quotes."""

    @property
    def version(self) -> str | None: ...
    @property
    def modified_ms(self) -> int | None:
        """Milliseconds since 1970."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __le__(self, other: object, /) -> bool: ...
    def __lt__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[int, str | None, str | None, int | None]: ...

# `RemoteStore.list` hides the type of this name.
_Objects: TypeAlias = list[tuple[str, ObjectState]]
_Names: TypeAlias = list[str]

def while_waiting(check: Callable[[], None]) -> None:
    """Let each thread that waits for a store call this, many times a second. What it raises ends the wait. Only the
    first call counts."""

@final
class Fetch:
    """Bytes on their way. Deleting it cancels the requests. In a child of a fork they are asked for again."""

    @property
    def state(self) -> ObjectState:
        """The object's state. Of a `first`, it waits for the answer."""

    def ready(self) -> bool:
        """Whether `wait` would return or raise at once."""

    def wait(self) -> Buffer:
        """The ranges back to back, each byte checked to be of the state asked for. Raises StoreError."""

@final
class Upload:
    """An object that is written in parts. It appears when it is completed, as a whole."""

    @property
    def id(self) -> str:
        """The store's name for the upload."""

    def part(self, number: int, data: ReadableBuffer) -> None:
        """Begin to send a part; if four are on their way, wait for one first. Parts are counted from 0."""

    def complete(self) -> ObjectState:
        """Make the object of the parts, which must be all from 0."""

    def abort(self) -> None:
        """Give the upload up, with what was sent. One that is gone is no error."""

@final
class RemoteStore:
    """A container in an object store, or a web server. It has a client and threads in each process that uses it."""

    def __new__(
        cls,
        url: str,
        options: dict[str, str],
        *,
        credentials: Callable[[], dict[str, str]] | None = None,
        in_flight_bytes: int = ...,
        deadline_s: float = 120.0,
        stall_s: float = 10.0,
    ) -> RemoteStore:
        """`url` names the container. `options` go over the environment's; unknown ones are ValueErrors."""

    def head(self, key: str) -> ObjectState: ...
    def list(self, prefix: str) -> _Objects:
        """All objects whose keys start with the prefix, sorted by key."""

    def list_folder(self, prefix: str) -> tuple[_Objects, _Names]:
        """The same up to the next `/` behind the prefix: objects, and folders, whose names end with `/`."""

    def first(self, key: str, start: int, length: int) -> Fetch:
        """Begin to fetch a range of an object of which nothing is known; its last bytes if `start` is negative.

        Fewer bytes come where the object ends before.
        """

    def fetch(self, key: str, state: ObjectState, starts: _Arrow, lengths: _Arrow) -> Fetch:
        """Begin to fetch ranges (uint64) of an object in this state. Any other state is a StoreError, "changed"."""

    def put(self, key: str, data: ReadableBuffer, *, create: bool = False) -> ObjectState:
        """Write a whole object; with `create`, only if there is none, else StoreError, "exists"."""

    def upload(self, key: str, id: str | None = None) -> Upload:
        """Begin to write an object in parts, or take up what was begun under this id."""

    def delete(self, key: str) -> None:
        """Remove an object. One that is not there is no error."""

    def stats(self) -> dict[str, int]:
        """`requests`, `bytes`, `retries` and `waiting_ns` since this process began to use the store."""

"""The compiled module: kernels on bytes, called once a chunk or batch, that let go of the GIL.

Numbers cross as Arrow arrays, bytes as `Buffer`. A kernel that meets a fault raises `KernelError`.
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
    "Example",
    "ExamplePlan",
    "Fault",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "File",
    "FloatList",
    "Framed",
    "Frames",
    "ImageRecipe",
    "Inflater",
    "Int64List",
    "KernelError",
    "Message",
    "MessageField",
    "MessageMap",
    "MsgpackFacts",
    "MsgpackPlan",
    "Pixels",
    "PooledBuffer",
    "RepeatedMessage",
    "RepeatedScalar",
    "SequenceExample",
    "TarPlan",
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
    "record_keys",
    "recordio_columns",
    "recordio_payloads",
    "reencode_images",
    "reserve",
    "resize_images",
    "riegeli_head",
    "riegeli_records",
    "splice_fields",
    "start_sync",
    "sync_file_system",
    "tar_comment",
    "tar_end_bytes",
    "tar_fields",
    "unpack_chunks",
    "walk",
]

class _Arrow(Protocol):
    """Any object that speaks the Arrow C data interface, such as a pyarrow array."""

    def __arrow_c_array__(self, requested_schema: object | None = None, /) -> tuple[object, object]:
        """The array as PyCapsules of its schema and its data."""

@final
class ArrowArray:
    """Arrow data on its way to Python: `pyarrow.array(x)` or `pyarrow.record_batch(x)`."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

@final
class Buffer(ReadableBuffer):
    """Immutable bytes that Rust owns or keeps alive; slices share them. The buffer protocol gives them read-only."""

    @staticmethod
    def from_values(array: object) -> Buffer: ...
    @staticmethod
    def from_bytes(data: bytes) -> Buffer: ...
    def __len__(self) -> int: ...
    def slice(self, start: int, length: int) -> Buffer:
        """A part without copying; clamped to the end."""

    def to_bytes(self) -> bytes: ...
    def crc32c(self, before: int = 0) -> int:
        """CRC-32C of these bytes behind others whose checksum is `before`."""

    def crc32(self, before: int = 0) -> int:
        """CRC-32, as zip has it, of these bytes behind others whose checksum is `before`."""

    @staticmethod
    def joined_crc32(first: int, second: int, second_bytes: int) -> int:
        """CRC-32 of two byte strings, one after the other: from theirs and the length of the second."""

    @staticmethod
    def join(parts: list[Buffer]) -> Buffer:
        """Several buffers one after another, copied into one."""

    def views(self, starts: _Arrow, lengths: _Arrow) -> ArrowArray:
        """Parts of these bytes (uint64 arrays) as a binary_view array that borrows them."""

@final
class File:
    """A local file, read by position."""

    def __new__(cls, path: str | PathLike[str]) -> File: ...
    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> Buffer:
        """Bytes from `start`; fewer than `length` only at the end of the file."""

    def gather(self, starts: _Arrow, lengths: _Arrow) -> Buffer:
        """Ranges of the file (uint64 arrays), one after another in one buffer."""

    def state(self) -> tuple[int, int]:
        """The size of the open file and when it was last written, in nanoseconds: as they are now."""

    def map(self) -> Buffer:
        """The whole file, borrowed; a file that is cut meanwhile ends the process."""

    def populate(self, mapped: Buffer) -> bool:
        """Bring a part of the mapped file into memory; False where the file is shorter by now."""

@final
class Fault:
    """What a kernel found wrong: plain facts. `byte` counts in the file, or in the plain stream."""

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
    """A kernel met a fault."""

    args: tuple[Fault]

@final
class Frames:
    """Where records lie in one buffer."""

    @property
    def base(self) -> int:
        """The offset of the buffer in its file or stream."""

    @property
    def buffer(self) -> Buffer:
        """What they lie in."""

    @property
    def num_bytes(self) -> int:
        """Bytes of payload in all."""

    def __len__(self) -> int: ...
    def __getitem__(self, range: slice, /) -> Frames: ...
    def payload(self, record: int) -> bytes: ...
    def starts(self) -> ArrowArray:
        """Offset of each frame in its file, uint64."""

    def lengths(self) -> ArrowArray:
        """Bytes of each payload, uint64."""

    def checksums(self) -> ArrowArray:
        """The stored checksum of each record, uint32."""

    def select(self, records: _Arrow) -> Frames:
        """Some records by uint64 numbers, in that order."""

    def verify(self, indexed: _Arrow | None = None) -> list[Fault]:
        """Check payloads against their stored checksums and, if given, an index's (uint32)."""

    def prove(self, indexed: _Arrow | None = None) -> None:
        """The same as an error: raises the first fault, if there is one."""

    def views(self, check: bool = False, indexed: _Arrow | None = None) -> ArrowArray:
        """The payloads as a binary_view array that borrows the buffer; with `check`, proved."""

    def decode(
        self, plan: ExamplePlan, check: bool = False, indexed: _Arrow | None = None
    ) -> ArrowArray:
        """The payloads decoded as Examples: a struct array, one field a column of the plan; with
        `check`, proved first. Many bytes from many places are shared out among threads."""

    def infer(self) -> dict[str, Any]:
        """What the payloads hold, if they are Examples: facts for a schema."""

_Column: TypeAlias = tuple[str, bytes, bool, str | None, str, int, str, bool, list[object] | None]

@final
class ExamplePlan:
    """What to decode, made once for many batches.

    A column is (name, key, in_lists, kind, layout, size, strings, required, default): see
    `penstock.payloads.example.plans.Wire`.
    """

    def __new__(
        cls, columns: list[_Column], dialect: str, complete: bool = False
    ) -> ExamplePlan: ...

@final
class Framed:
    """Frames one after another, with what an index keeps of each."""

    @property
    def data(self) -> Buffer:
        """The frames; copied where they are in parts."""

    @property
    def buffers(self) -> list[Buffer]:
        """What the frames lie in: memory of their own, and that of large values, which stay where they are."""

    @property
    def pieces(self) -> list[tuple[int, int, int]]:
        """Their bytes, one piece after another: the number of a buffer, and from where to where in it."""

    @property
    def num_bytes(self) -> int: ...
    @property
    def lengths(self) -> ArrowArray:
        """Bytes of each whole frame, uint64."""

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
        """Go on from a seek point; the bytes from `compressed_bit // 8` on are to be pushed."""

    def push(
        self,
        data: Buffer,
        at_end: bool,
        out_bytes: int,
        prefix: Buffer | None = None,
        more: Buffer | None = None,
    ) -> tuple[Buffer, int]:
        """Up to `out_bytes` plain bytes behind a copy of `prefix`, and the input bytes taken of `data`
        and of `more` behind it."""

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
        """Add plain bytes; the compressed bytes that are ready, often none."""

    def finish(self) -> Buffer:
        """End the stream; the last compressed bytes."""

def start_sync(fd: int, start: int, length: int) -> None:
    """Have the system begin to write these bytes of a file to its disk, without waiting for it."""

def exchange(one: str, other: str) -> bool:
    """Give each of two files or folders the name of the other in one step. False where the system or the file
    system has no such call."""

def sync_file_system(fd: int) -> bool:
    """Make all that was written to the file system of an open file or folder durable, and report what went wrong
    since that was opened. False where the system has no call that reports."""

def reserve(fd: int, start: int, length: int) -> bool:
    """Have the file system keep room for these bytes of a file, where that makes writing them quicker; whether
    it was done. The file's size stays as it is."""

def walk(
    name: str, buffer: Buffer, base: int, max_record: int, last: bool = True
) -> tuple[Frames, int, int, Fault | None]:
    """Find the frames of a buffer: (frames, bytes consumed, bytes the next frame needs in all, fault).
    `last`: the stream of frames ends where the buffer ends."""

def read_frames(
    name: str, file: File, start: int, length: int, max_record: int
) -> tuple[Frames, int, int, Fault | None, int]:
    """Read a part of a local file and find its frames: what `walk` returns, and the bytes read."""

def frames_at(name: str, buffer: Buffer, starts: _Arrow, lengths: _Arrow, places: _Arrow) -> Frames:
    """The frames that an index says lie at these places (uint64: start in the buffer, whole
    length, offset in the file). A fault of kind "stale" where no such frame stands there."""

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
    """Examples by their numbers (int64), read and decoded: `starts` (uint64) says where each record of the file
    begins and where the last one ends, `checksums` (uint32) what the index knows of each; all of them little-endian.
    `max_record` counts frames. None where anything is not as it should be."""

def next_head(name: str, buffer: Buffer, start: int) -> tuple[int, int] | None:
    """The first right head of a frame from `start` on: (offset, bytes of the whole frame)."""

def frame_extent(
    name: str, read: Callable[[int, int], Buffer], start: int, checksum: bool
) -> tuple[int | None, int, Fault | None]:
    """Where the frame at `start` of a stream ends, one that is too long to be read as a whole: (end, None where the
    stream ends inside it; what an index keeps for it, 0 unless `checksum` asks for it; fault).

    `read(start, length)` gives bytes of the stream, fewer only at its end."""

def index_file(
    name: str, file: File, max_record: int, start: int = 0, goal: int = ...
) -> tuple[ArrowArray, ArrowArray, Fault | None]:
    """Index a local file by its heads: (starts and the last end, stored checksums, fault).

    Begins at the frame at `start`, ends with the one that brings `goal` bytes together."""

def decode_tensors(
    plan: ExamplePlan, payloads: list[bytes] | Frames | _Arrow, sparse: list[int]
) -> list[tuple[Any, Any, Any]]:
    """Examples decoded into the parts of arrays, for each column of the plan: (values, ends of lists
    or None, ends of lists of frames or None), or (values, indices, longest lists) for columns numbered
    in `sparse`. Numbers come in a bytearray, or as Values where they are many; strings in a list."""

def encode_examples(batch: _Arrow, kind: str) -> Framed:
    """The records of a batch as framed messages of kind "example" or "sequence"."""

def frame_records(records: _Arrow) -> Framed:
    """Byte strings, each a record as it stands, as frames."""

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
    """Other fields for existing messages of kind "example" or "sequence", values unread.

    Drops, renames, then appends `fields` (a row a record, columns as for `encode_examples`; a null
    adds nothing). A key that is there already is a fault of kind "schema", unless `replace` cuts
    its entry. With `verify` old payloads are proved; without it, damage is passed on, as wrong
    against its extended checksum as before. Records that are cut or renamed in are always proved.

    Returns the new frames, and how many records had each name of `drop`, then of `rename`."""

def has_fields(frames: Frames, names: list[str], kind: str) -> ArrowArray:
    """Which records have which fields: a struct array with a bool column a name."""

def inflate_member(data: Buffer, start: int, length: int, max_bytes: int) -> Buffer:
    """The plain bytes of one whole gzip member."""

def inflate_members(data: Buffer, members: list[tuple[int, int]], max_bytes: int) -> Buffer:
    """The plain bytes of whole gzip members (start, length), one after the other."""

def unpack_chunks(
    data: Buffer,
    chunks: list[tuple[int, int]],
    filters: list[str],
    chunk_bytes: int,
    width: int,
    threads: int,
) -> Buffer:
    """The chunks of an HDF5 dataset, each of (bytes, mask of filters left out) and one behind another
    in `data`, unpacked; the fault of one has its number as its record."""

def gzip_member(plain: Buffer, start: int, length: int, num_records: int, level: int) -> Buffer:
    """A gzip member of a part of `plain`, with its size and number of records in its header."""

def member_head(data: Buffer, at: int) -> tuple[int, int] | None:
    """Bytes and records of the penstock member at `at`, or None if it is none."""

@final
class Pixels:
    """Decoded pixels, which NumPy may read and write: `numpy.asarray(x)` is uint8[len(x)]."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

@final
class ImageRecipe:
    """How images are cropped, resized, mirrored and written. `crop` is "whole", "center" or
    "random"; `table` has two or four bytes for each of 256 values of red, green and blue, `deep`
    likewise for each of 65536, where images of 16 bits are used in full depth."""

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
    ) -> ImageRecipe: ...
    def view(self, width: int, height: int, key: int) -> tuple[float, float, float, float, bool]:
        """Left, top, width and height of what is looked at, and whether it is mirrored."""

    def views(self, sizes: _Arrow, keys: _Arrow) -> ArrowArray:
        """The same for each image of these sizes (a struct array of width and height): a struct array of left, top,
        width, height, new_width, new_height (float64) and flip, null where the size is."""

def glue(array: _Arrow) -> ArrowArray:
    """Each head and its body as one: a struct array of heads (binary) and bodies (binary_view) as a
    binary array."""

def image_view_sizes(images: _Arrow, image_pixels: int) -> ArrowArray:
    """A struct array of width and height (uint32) of each image, null where it cannot be told."""

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
    """Images made into `out`, an array of NumPy; the damaged ones as (place, fault, whether
    something of it was given). `main`: width and height of the images whose crop and flip they share.
    `mask`: the images are masks of this many channels, and of 16 bits or 8. `shape`: they are pixels
    (height, width, channels), of two bytes a value where `deep`."""

def mask_kind(images: _Arrow, image_pixels: int) -> tuple[int, bool]:
    """The channels of the first mask with a valid head, 1 or 3, and whether any mask has 16 bits."""

@final
class BufferPool:
    """Memory that is used again; keeps at most `most_bytes` that nobody uses."""

    def __new__(cls, most_bytes: int) -> BufferPool: ...
    def take(self, num_bytes: int) -> PooledBuffer:
        """So many bytes, whatever is in them."""

    @property
    def free_bytes(self) -> int: ...
    def __reduce__(self) -> tuple[type[BufferPool], tuple[int]]: ...

@final
class PooledBuffer:
    """Memory of a pool, which NumPy may read and write: `numpy.asarray(x)` is uint8[len(x)]. It
    goes back to the pool with the last array that lies in it."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

def probe_images(images: _Arrow) -> ArrowArray:
    """What the first bytes of each image of a binary array say: a struct array of codec (string),
    width, height (uint32) and channels (uint8)."""

def decode_images(
    images: _Arrow,
    *,
    mode: str = "rgb",
    image_pixels: int,
    batch_bytes: int,
    allow_damaged: bool = False,
    threads: int = 1,
) -> tuple[Pixels, ArrowArray]:
    """The pixels of all images one behind another, and a struct array of width, height and
    channels. A null has no pixels."""

def jpeg_pixels_by(
    data: bytes,
    *,
    by_parts: bool,
    channels: int = 3,
    part: int = 1,
    region: tuple[int, int, int, int] | None = None,
    allow_damaged: bool = False,
) -> Pixels | None:
    """One `part`-th of a JPEG, or the region (left, top, width, height) of that, by one of the two
    ways in which JPEGs are decoded, for tests that compare them: by libjpeg's parts and our own
    decoder of Huffman codes (None where it leaves the file to the other), or by TurboJPEG."""

def encode_images(
    pixels: list[Any],
    sizes: _Arrow,
    codec: str,
    *,
    quality: int = 90,
    lossless: bool = False,
    threads: int = 1,
) -> ArrowArray:
    """Pixels (arrays of uint8, each of one image or of several, one behind another) encoded: a
    binary array. `sizes` is a record batch of width and height (uint32) and channels (uint8)."""

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
    """Each image as another one: smaller, of another codec or quality. What needs no change keeps
    its bytes."""

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

    Each chunk is where it starts in the buffer, how many bytes it may take, where it starts in the
    file, how many records it has and how many bytes they have (uint64 arrays). Heads are always
    proved, data with `check`."""

def riegeli_head(buffer: Buffer, offset: int) -> tuple[int, int, int, int]:
    """The head of the chunk at the front of a buffer, which is byte `offset` of its file: (kind,
    bytes of data, records, their bytes)."""

def message_numbers(frames: Frames, fields: list[int]) -> tuple[ArrowArray, ArrowArray, ArrowArray]:
    """The numbers in each record, a small message of varints, by three fields: uint64 arrays, 0
    where a message lacks the field."""

@final
class TarPlan:
    """What to read of the records of a tar archive, made once for many batches.

    A field is (name, contents), contents "bytes", "views" (bytes as views into the frames), "text" or
    "number"; with `keys`, the records' keys are the first column.
    """

    def __new__(
        cls, fields: list[tuple[str, str]], keys: bool, complete: bool = False
    ) -> TarPlan: ...
    def decode(self, frames: Frames) -> ArrowArray:
        """The columns of some records: a struct array."""

def encode_tar(keys: _Arrow, batch: _Arrow) -> Framed:
    """Columns of byte strings, called as fields and in their order, as tar records of these keys."""

def is_tar_head(buffer: Buffer) -> bool:
    """Whether a tar archive may begin so."""

def tar_comment(text: str) -> Buffer:
    """The global PAX header that holds a comment, padded."""

def tar_end_bytes(frames: Frames) -> ArrowArray:
    """How many bytes of each record, at its end, are zeros that end an archive (uint64)."""

def tar_fields(frames: Frames, most: int) -> dict[str, int]:
    """The fields of some records, at most so many, each with the number of records that have it."""

@final
class MsgpackFacts:
    """What was seen of some MessagePack records."""

    def __new__(cls) -> MsgpackFacts: ...
    def see(self, frames: Frames, nesting: int) -> None:
        """Look at more records, whose containers may be `nesting` deep."""

    @property
    def num_records(self) -> int: ...
    def columns(self) -> ArrowArray | None:
        """A batch without records that has the columns that fit them, with metadata
        `penstock.msgpack` for what a type does not say; None where records are no maps of fields."""

@final
class MsgpackPlan:
    """What to decode of MessagePack maps, made once for many batches: the columns of a batch
    without records, as `MsgpackFacts.columns` gives them."""

    def __new__(
        cls, columns: _Arrow, nesting: int, blanks: int, complete: bool = False
    ) -> MsgpackPlan: ...
    def decode(
        self, frames: Frames, check: bool = False, indexed: _Arrow | None = None
    ) -> ArrowArray:
        """Records as columns: a struct array; with `check`, they are proved first."""

def encode_msgpack(batch: _Arrow) -> Framed:
    """The records of a batch as MessagePack maps."""

def frame_values(records: _Arrow) -> Framed:
    """Byte strings, each a whole MessagePack value as it stands, as records."""

def looks_like_maps(frames: Frames) -> bool:
    """Whether records can hardly be anything but MessagePack maps of the same fields."""

def recordio_payloads(
    frames: Frames, lend: bool, check: bool = False, indexed: _Arrow | None = None
) -> ArrowArray:
    """RecordIO payloads as binary; if they are to be lent, as binary_view, which borrows where a
    record has one part. Verified first if `check`."""

def recordio_columns(
    frames: Frames,
    columns: list[str],
    num_labels: int | None,
    lend: bool,
    check: bool = False,
    indexed: _Arrow | None = None,
) -> ArrowArray:
    """Those of label, id, id2 and image that are asked for, in this order, as a struct array.
    `num_labels`: 0 for one number, a count for so many, None for lists. `lend`: images are
    binary_view, not binary."""

def encode_recordio(bodies: _Arrow, headers: _Arrow | None = None) -> Framed:
    """Byte strings as RecordIO frames, each behind the header (label, id, id2) of the same row."""

def read_files(
    folder: str, names: list[str], expected_bytes: int, most_bytes: int
) -> tuple[Buffer, list[int], list[int]]:
    """Whole files of a folder, one after another in one buffer; the length of each, and when it was last
    written, in nanoseconds, as the system says after it was read. None may have more than `most_bytes`."""

def bytes_list(array: object) -> list[bytes | None]:
    """The values of a binary array, copied while the GIL is free; None where there is none."""

def permuted(num_records: int, key0: int, key1: int, start: int, stop: int) -> ArrowArray:
    """The numbers at positions start to stop of the permutation of 0 to num_records - 1 that two
    keys choose, as int64."""

def permuted_each(num_records: _Arrow, key0: int, keys: _Arrow, positions: _Arrow) -> ArrowArray:
    """For each row the number at a position of a permutation of its own, chosen by `key0` and the
    row's key, as int64; num_records, keys and positions are arrays of uint64."""

def buffered(num_records: int, size: int, key: int, start: int, stop: int) -> ArrowArray:
    """What a shuffle buffer of `size` records gives at steps start to stop: positions in the stream
    of num_records that runs through it, as int64."""

def mixed(
    weights: list[int], key: int, origin: int, length: int, start: int, stop: int
) -> tuple[ArrowArray, list[int]]:
    """Which set comes at positions start to stop of an epoch of a mixture, as uint32, and how many
    records each set had before; `origin` positions were in epochs before. Weights are whole
    numbers, one positive, less than 2^40 together."""

def key_of(numbers: list[int]) -> int:
    """One key of 64 bits out of any numbers of 64 bits, in their order."""

def record_keys(seed: int, epoch: int, records: _Arrow) -> ArrowArray:
    """For each record the key of (seed, epoch, record), as uint64; records are int64 or uint64."""

# The messages of tf.train, with protobuf's names for what they do.

@final
class MessageField:
    """Name and number of a field."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...

@disjoint_base
class Message:
    """What all messages can do."""

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
    """The values of a BytesList, FloatList or Int64List: a live view that behaves as a list."""

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
    """The features of a FeatureList: a live view that behaves as a list of copies."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: int | slice, /) -> Any: ...
    def __setitem__(self, key: int | slice, value: Any, /) -> None: ...
    def __delitem__(self, key: int | slice, /) -> None: ...
    def __iter__(self) -> Iterator[Feature]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def add(self, **fields: Any) -> Feature:
        """A new feature at the end, of these fields."""

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
    """The messages of Features or FeatureLists by name: a live view that behaves as a dict, whose
    missing keys are made when they are read."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: str | bytes, /) -> Any: ...
    def __setitem__(self, key: str | bytes, value: object, /) -> None:
        """protobuf refuses this; here a copy of the message is put in its place."""

    def __delitem__(self, key: str | bytes, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __eq__(self, value: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def get(self, key: str | bytes, default: Any = None) -> Any: ...
    def get_or_create(self, key: str | bytes) -> Any: ...
    def setdefault(self, key: str | bytes, default: object = None) -> Any:
        """The message of a key; a default copied there where there is none (protobuf refuses that)."""

    def update(self, other: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Copy the messages of a mapping, in the place of those of the same keys."""

    def MergeFrom(self, other: MessageMap) -> None: ...
    def pop(self, key: str | bytes, default: object = None) -> Any:
        """Take a message out; as everywhere, one that is not there is an empty one."""

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
    """One record of steps: features of the whole, and lists of features, one for each step."""

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
    """An array that Rust made: `numpy.asarray(x)` is it, without a copy."""

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
    """The pixels of a JPEG; `window` is top, left, height and width."""

def jpeg_shape(contents: bytes) -> tuple[int, int, int]:
    """Height, width and channels of a JPEG."""

def png_pixels(contents: bytes, *, channels: int, wide: bool, image_pixels: int) -> Values:
    """The pixels of a PNG, of 8 bits or `wide`."""

def bmp_pixels(contents: bytes, *, channels: int, image_pixels: int) -> Values:
    """The pixels of a BMP."""

def gif_pixels(contents: bytes, *, first_only: bool, image_pixels: int) -> Values:
    """The frames of a GIF."""

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
    """An image of uint8 as a JPEG."""

def png_bytes(image: object, *, level: int | None = None) -> bytes:
    """An image of uint8 or uint16 as a PNG."""

def resize_images(
    images: object, height: int, width: int, method: str, antialias: bool = False
) -> Values:
    """An image, or a batch, at another size: float32, or as they are by "nearest"."""

def change_colours(images: object, change: str, amount: float = 0.0) -> Values:
    """Pixels of three floats changed: "to_hsv", "from_hsv", "hue" or "saturation"."""

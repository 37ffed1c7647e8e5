r"""Logical types: the meaning of values in containers that store only bytes and numbers.

| meaning | Arrow type |
|---|---|
| tensor of a fixed shape | `arrow.fixed_shape_tensor` |
| tensor whose shape differs by record | `arrow.variable_shape_tensor`: struct of data and shape |
| encoded image | `penstock.image` over binary; plain pixels are stored as a PPM file |
| text, JSON | string, `arrow.json` |
| class label | dictionary of names |
| a dtype that Arrow lacks | its bits; the field's metadata names the dtype under `penstock.dtype` |

Every format reads and writes these types, so fields keep their meaning when they are converted. Sources: Arrow's
canonical extension types; NetPBM for PPM (`P6\n<width> <height>\n255\n`, or `P5` for grey, then the rows of pixels).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns import nearest
from penstock.columns.facts import parsed_object
from penstock.errors import FormatError, UnsupportedError

DTYPE_KEY = b"penstock.dtype"
"""Key in a field's metadata for the NumPy name of its dtype."""

IN_PARTS = pa.struct(
    [pa.field("head", pa.binary(), False), pa.field("body", pa.binary_view(), False)]
)
"""Storage of images whose bodies are views into the buffer that was read. If the body is only pixels, the head is the
file header for them; if the body is a whole file, the head is empty. See `penstock.columns.lending.whole`."""


class ImageType(pa.ExtensionType):
    """An encoded image: the bytes of a JPEG, PNG, WebP, PPM, BMP, GIF or TIFF file.

    `codec` is "jpeg", "png", "webp", "ppm", "bmp", "gif" or "tiff", or "" if unknown. It comes from a file name or the
    first records, so another image may have another codec; readers detect the codec from the bytes.

    Example:
        >>> from penstock.columns.types import ImageType
        >>> ImageType("jpeg").codec
        'jpeg'
    """

    def __init__(self, codec: str = "", storage: pa.DataType | None = None) -> None:
        self.codec = codec
        super().__init__(pa.binary() if storage is None else storage, "penstock.image")

    def __hash__(self) -> int:
        return hash((self.extension_name, self.storage_type, self.codec))

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"codec": self.codec}).encode() if self.codec else b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> ImageType:
        if not _can_hold_images(storage):
            raise FormatError(f"a field of images cannot have values of the type {storage}")
        if not serialized:  # the usual case must be fast, because pyarrow builds types often
            return cls("", storage)
        try:
            codec = parsed_object(serialized).text("codec")
        except FormatError:
            codec = ""  # it is only a hint
        return cls(codec, storage)


class VariableShapeTensorType(pa.ExtensionType):
    """A tensor of `num_dimensions` whose shape differs by record, stored as a struct of data and shape. Axis names and
    a partly fixed shape, which Arrow's type may have, are not kept.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.types import VariableShapeTensorType
        >>> VariableShapeTensorType(pa.uint8(), 3).num_dimensions
        3
    """

    def __init__(self, value_type: pa.DataType, num_dimensions: int) -> None:
        self.value_type = value_type
        self.num_dimensions = num_dimensions
        storage = pa.struct(
            [
                pa.field("data", pa.list_(value_type)),
                pa.field("shape", pa.list_(pa.int32(), num_dimensions)),
            ]
        )
        super().__init__(storage, "arrow.variable_shape_tensor")

    def __hash__(self) -> int:
        return hash((self.extension_name, self.storage_type))

    def __str__(self) -> str:
        # Arrow's own text has only the name of this class, so errors would show two types as the same.
        return f"extension<{self.extension_name}[value_type={self.value_type}, ndim={self.num_dimensions}]>"

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"  # pyarrow reads it as JSON

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage: pa.DataType, serialized: bytes
    ) -> VariableShapeTensorType:
        return cls(storage.field("data").type.value_type, storage.field("shape").type.list_size)


def _can_hold_images(storage: pa.DataType) -> bool:
    kind = pa.types
    if kind.is_dictionary(storage):
        storage = storage.value_type
    return bool(
        is_bytes(storage)
        or is_text(storage)
        or kind.is_fixed_size_binary(storage)
        or kind.is_null(storage)
        or storage == IN_PARTS
    )


def ragged_in(type_: Any) -> Iterator[Any]:
    """Yield the types of variable-shape tensors, penstock's and pyarrow's, in a type and its nested types."""
    if getattr(type_, "extension_name", "") == "arrow.variable_shape_tensor":
        yield type_
        return
    type_ = storage_of(type_)
    if pa.types.is_dictionary(type_):
        yield from ragged_in(type_.value_type)
    elif pa.types.is_nested(type_):
        for place in range(type_.num_fields):
            yield from ragged_in(type_.field(place).type)


def _register(type_: pa.ExtensionType) -> None:
    try:
        pa.register_extension_type(type_)
    except pa.ArrowKeyError:
        pass  # pyarrow has this type, or another copy of this module registered it


_register(ImageType())
_register(VariableShapeTensorType(pa.uint8(), 1))


def is_image(type_: pa.DataType) -> bool:
    """Whether values are encoded images."""
    return getattr(type_, "extension_name", "") == "penstock.image"


def is_embedded_image(type_: Any) -> bool:
    """Whether values are structs of `bytes` and maybe `path`, as which Hugging Face stores images. Audio is stored in
    the same way."""
    names = {field.name for field in type_} if pa.types.is_struct(type_) else set[str]()
    return "bytes" in names and names <= {"bytes", "path"} and is_bytes(type_.field("bytes").type)


def is_json(type_: pa.DataType) -> bool:
    """Whether values are JSON texts."""
    return getattr(type_, "extension_name", "") == "arrow.json"


def is_fixed_tensor(type_: pa.DataType) -> bool:
    """Whether values are tensors of one shape."""
    return getattr(type_, "extension_name", "") == "arrow.fixed_shape_tensor"


def is_variable_tensor(type_: pa.DataType) -> bool:
    """Whether the type is penstock's for tensors of different shapes. For pyarrow's type see `own_types`."""
    return isinstance(type_, VariableShapeTensorType)


def _is_foreign(type_: Any) -> bool:
    name = getattr(type_, "extension_name", "")
    return name == "arrow.variable_shape_tensor" and not is_variable_tensor(type_)


def own_types(schema: Any) -> Any:
    """Replace pyarrow's type for variable-shape tensors by penstock's, because pyarrow's has no attributes for values
    and axes. Views within lists, structs and dictionaries, as polars writes them, become plain values, because pyarrow
    can neither take nor compare such views.

    Raises:
        UnsupportedError: the axes of a field are permuted, so its values are in another order.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.types import VariableShapeTensorType, own_types
        >>> schema = pa.schema([("x", VariableShapeTensorType(pa.uint8(), 3))])
        >>> own_types(pa.ipc.read_schema(schema.serialize())) == schema
        True
    """
    for place, field in enumerate(schema):
        type_ = field.type
        for found in ragged_in(type_):
            _refuse_permuted(found, field.name)
        if _is_foreign(type_):
            value, axes = _value_and_axes(type_)
            schema = schema.set(place, field.with_type(VariableShapeTensorType(value, axes)))
        elif pa.types.is_nested(type_) or pa.types.is_dictionary(type_):
            plain = _without_views(type_)
            if plain != type_:
                schema = schema.set(place, field.with_type(plain))
    return schema


def _value_and_axes(type_: Any) -> tuple[Any, int]:
    """The value type and number of axes of pyarrow's type, from its storage."""
    storage = type_.storage_type
    return storage.field("data").type.value_type, storage.field("shape").type.list_size


_PARAMETERS = re.compile(r"(?:, permutation=\[([0-9,]*)\])?(?:\Z|, (?:dim_names|uniform_shape)=\[)")
"""Matches the end of pyarrow's text for a type. The permutation comes first, so an axis name cannot imitate it."""


def _refuse_permuted(type_: Any, name: str) -> None:
    """Raise UnsupportedError for a pyarrow type with permuted axes, which only its text shows."""
    if is_variable_tensor(type_):
        return
    value, axes = _value_and_axes(type_)
    text = str(type_)
    _, begun, rest = text.partition(f"[value_type={value}, ndim={axes}")
    known = _PARAMETERS.match(rest.removesuffix("]>")) if begun else None
    if known is None:
        raise UnsupportedError(
            f"tensors have a type that penstock does not support: {text}",
            field=name,
        )
    order = known[1]
    if order and [int(axis) for axis in order.split(",")] != list(range(axes)):
        raise UnsupportedError(
            f"the axes of these tensors are permuted, [{order}], which penstock does not support",
            field=name,
            hint="transpose the values and write the type without a permutation, or read it with pyarrow and pass"
            " its storage (chunk.storage), which has the values and shapes as stored",
        )


def check_shapes(array: Any) -> None:
    """Raise ValueError if a tensor's shape does not match its number of values. Arrow's validation does not compare
    them."""
    type_ = array.type
    if getattr(type_, "extension_name", "") != "arrow.variable_shape_tensor":
        return
    stored = array.drop_null().storage if array.null_count else array.storage
    data, shapes = stored.field("data"), stored.field("shape")
    sizes = shapes.flatten()
    if data.null_count or shapes.null_count or sizes.null_count:
        raise ValueError("a tensor lacks its values or its shape")
    counts = np.diff(np.asarray(data.offsets))
    axes = np.asarray(sizes).reshape(len(stored), -1).astype(np.int64)
    rough = np.prod(axes.astype(np.float64), axis=1)  # floats do not overflow
    wrong = (axes < 0).any(axis=1) | (rough != counts)
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        shape = axes[place].tolist()
        raise ValueError(f"tensor {place} has {counts[place]} values and the shape {shape}")


def _without_views(type_: Any) -> Any:
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    kind = pa.types
    if kind.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _without_views(type_.value_type), type_.ordered)
    if kind.is_struct(type_):
        return pa.struct([field.with_type(_without_views(field.type)) for field in type_])
    if kind.is_list(type_) or kind.is_large_list(type_) or kind.is_fixed_size_list(type_):
        item = type_.value_field.with_type(_without_views(type_.value_type))
        if kind.is_fixed_size_list(type_):
            return pa.list_(item, type_.list_size)
        return pa.large_list(item) if kind.is_large_list(type_) else pa.list_(item)
    return plain.get(type_, type_)


def own_tensors(array: Any, type_: Any) -> Any:
    """Convert tensors of pyarrow's type to `type_`, if that is penstock's type."""
    if not (is_variable_tensor(type_) and _is_foreign(array.type)):
        return array
    return pa.ExtensionArray.from_storage(type_, array.storage.cast(type_.storage_type))


def own_batch(batch: Any, schema: Any) -> Any:
    """Convert a pyarrow batch to a schema from `own_types`."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = [own_tensors(array, f.type) for array, f in zip(batch.columns, schema, strict=True)]
    arrays = [
        array if array.type == f.type else cast_values(array, f.type)
        for array, f in zip(arrays, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch


def is_bytes(type_: pa.DataType) -> bool:
    """Whether values are byte strings of any length."""
    kind = pa.types
    return bool(kind.is_binary(type_) or kind.is_large_binary(type_) or kind.is_binary_view(type_))


def is_text(type_: pa.DataType) -> bool:
    """Whether values are texts."""
    kind = pa.types
    return bool(kind.is_string(type_) or kind.is_large_string(type_) or kind.is_string_view(type_))


def is_list(type_: pa.DataType) -> bool:
    """Whether values are lists, of any or a fixed length, but not maps."""
    kind = pa.types
    return bool(
        kind.is_list(type_)
        or kind.is_large_list(type_)
        or kind.is_fixed_size_list(type_)
        or kind.is_list_view(type_)
        or kind.is_large_list_view(type_)
    )


def innermost(type_: pa.DataType) -> pa.DataType:
    """The type of the values in lists of lists, tensors and dictionaries."""
    while True:
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        elif pa.types.is_dictionary(type_) or is_list(type_):
            type_ = type_.value_type
        else:
            return type_


def is_bytes_view(type_: pa.DataType) -> bool:
    """Whether values are views of byte strings or of texts."""
    return bool(pa.types.is_binary_view(type_) or pa.types.is_string_view(type_))


def cast_values(array: Any, wanted: pa.DataType) -> Any:
    """Like `array.cast(wanted)`, with workarounds. Decimals become the nearest floats. For an extension type over views, the
    storage is cast, because pyarrow 26 would return wrong bytes or crash. A slice of lists is copied, because pyarrow
    would cast the values of all lists."""
    array = _without_rest(array)
    if isinstance(array, pa.ExtensionArray) and is_bytes_view(array.storage.type):
        array = array.storage
        if isinstance(wanted, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(wanted, array.cast(wanted.storage_type))
    return nearest.cast(array, wanted)


def _without_rest(array: Any) -> Any:
    """Copy a slice of nested values if its buffers hold many other values."""
    if isinstance(array, pa.ExtensionArray):
        stored = array.storage
        kept = _without_rest(stored)
        return array if kept is stored else pa.ExtensionArray.from_storage(array.type, kept)
    if not (isinstance(array, pa.Array) and pa.types.is_nested(array.type)):
        return array
    return pa.concat_arrays([array]) if array.get_total_buffer_size() > 2 * array.nbytes else array


def storage_of(type_: pa.DataType) -> pa.DataType:
    """The storage type of an extension type, or the type itself."""
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def row_bytes(type_: pa.DataType) -> int:
    """How many bytes a row of a column takes at least, even without a value."""
    type_ = storage_of(type_)
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size * row_bytes(type_.value_type)
    if pa.types.is_struct(type_):
        return sum(row_bytes(field.type) for field in type_)
    try:
        return (type_.bit_width + 7) // 8
    except ValueError:
        return 0 if pa.types.is_null(type_) else 4  # the end offset of a string or a list


def fixed_tensors(values: np.ndarray) -> pa.Array:
    """Convert an array whose first axis counts records to a column of numbers, or of tensors if it has more axes. An
    array in C order is not copied.

    Example:
        >>> import numpy as np
        >>> from penstock.columns.types import fixed_tensors
        >>> fixed_tensors(np.zeros((5, 2, 3), np.float32)).type.shape
        [2, 3]
    """
    values = np.ascontiguousarray(values)
    flat = pa.array(values.reshape(-1))
    if values.ndim == 1:
        return flat
    shape = values.shape[1:]
    size = int(np.prod(shape))
    storage = pa.FixedSizeListArray.from_arrays(flat, size) if size else _empty(flat, len(values))
    kind: Any = pa.fixed_shape_tensor(flat.type, shape)
    return pa.ExtensionArray.from_storage(kind, storage)


def _empty(flat: pa.Array, num_records: int) -> pa.Array:
    """The storage of tensors whose shape contains a zero: empty lists."""
    type_ = pa.list_(flat.type, 0)
    return pa.FixedSizeListArray.from_buffers(type_, num_records, [None], children=[flat])

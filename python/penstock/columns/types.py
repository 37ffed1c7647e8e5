r"""Logical types: what a value means where its container knows only bytes and numbers.

| meaning | Arrow type |
|---|---|
| tensor of a fixed shape | `arrow.fixed_shape_tensor` |
| tensor whose shape differs by record | `arrow.variable_shape_tensor`: struct of data and shape |
| encoded image | `penstock.image` over binary; plain pixels are stored as a PPM file |
| text, JSON | string, `arrow.json` |
| class label | dictionary of names |
| a dtype that Arrow lacks | its bits, with the dtype's name in the field's metadata, `penstock.dtype` |

Every format reads into these and writes from them, so a field keeps its meaning from one container to another. Sources:
Arrow's canonical extension types; NetPBM for PPM (magic `P6`, or `P5` for grey: `P6\n<width> <height>\n255\n` and the
rows of pixels).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.facts import parsed_object
from penstock.errors import FormatError, UnsupportedError

DTYPE_KEY = b"penstock.dtype"
"""Metadata of a field: the NumPy name of the dtype that its values have."""

IN_PARTS = pa.struct(
    [pa.field("head", pa.binary(), False), pa.field("body", pa.binary_view(), False)]
)
"""Borrowed images that are stored as pixels: the pixels in place, and the heads that make them files. The head of an
image that is already a file is empty. See `penstock.columns.lending.whole`."""


class ImageType(pa.ExtensionType):
    """An encoded image: the bytes of a JPEG, PNG, WebP or PPM file.

    `codec` is "jpeg", "png", "webp" or "ppm" if one is known for the column, else "". It comes from a name or from the
    first records, so a later image may have another codec: readers go by its bytes.

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
            raise FormatError(f"a field says that its values are images, and they are {storage}")
        if not serialized:  # the usual case, and pyarrow asks for a type at every turn
            return cls("", storage)
        try:
            codec = parsed_object(serialized).text("codec")
        except FormatError:
            codec = ""  # it is a hint, and the bytes of each image tell what it is
        return cls(codec, storage)


class VariableShapeTensorType(pa.ExtensionType):
    """A tensor of `num_dimensions`, of another shape in each record: struct of data and shape.

    Names of axes and a shape that all records share in part, which Arrow's type may have too, are not kept.

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

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"  # pyarrow reads it as JSON

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage: pa.DataType, serialized: bytes
    ) -> VariableShapeTensorType:
        return cls(storage.field("data").type.value_type, storage.field("shape").type.list_size)


def _can_hold_images(storage: pa.DataType) -> bool:
    """Whether the bytes of files can be values of a type."""
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
    """The types of tensors whose shapes differ, penstock's and pyarrow's: the type itself, or those inside it."""
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
        pass  # pyarrow knows it by itself, or another copy of this module was first


_register(ImageType())
_register(VariableShapeTensorType(pa.uint8(), 1))


def is_image(type_: pa.DataType) -> bool:
    """Whether values are encoded images."""
    return getattr(type_, "extension_name", "") == "penstock.image"


def is_json(type_: pa.DataType) -> bool:
    """Whether values are JSON texts."""
    return getattr(type_, "extension_name", "") == "arrow.json"


def is_fixed_tensor(type_: pa.DataType) -> bool:
    """Whether values are tensors of one shape."""
    return getattr(type_, "extension_name", "") == "arrow.fixed_shape_tensor"


def is_variable_tensor(type_: pa.DataType) -> bool:
    """Whether values are tensors whose shapes differ, as penstock has them: see `own_types`."""
    return isinstance(type_, VariableShapeTensorType)


def _is_foreign(type_: Any) -> bool:
    name = getattr(type_, "extension_name", "")
    return name == "arrow.variable_shape_tensor" and not is_variable_tensor(type_)


def own_types(schema: Any) -> Any:
    """The schema with penstock's type for tensors whose shapes differ: from bytes and C streams pyarrow makes a type of
    its own, without attributes for values and axes. Names of axes and a shape that all tensors share are not kept: no
    value depends on them. Views within lists, structs and dictionaries, as polars writes them, become plain values:
    pyarrow can neither take nor compare them.

    Raises:
        UnsupportedError: the axes of a field are permuted, so that its values are in another order.

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
    """Value type and number of axes of pyarrow's type, which only its storage gives."""
    storage = type_.storage_type
    return storage.field("data").type.value_type, storage.field("shape").type.list_size


_PARAMETERS = re.compile(r"(?:, permutation=\[([0-9,]*)\])?(?:\Z|, (?:dim_names|uniform_shape)=\[)")
"""The end of pyarrow's text of a type. The permutation comes first, so no name of an axis can pass for one."""


def _refuse_permuted(type_: Any, name: str) -> None:
    """Refuse a type of pyarrow whose values are not in the order of its axes. Only its text shows that order."""
    if is_variable_tensor(type_):
        return
    value, axes = _value_and_axes(type_)
    text = str(type_)
    _, begun, rest = text.partition(f"[value_type={value}, ndim={axes}")
    known = _PARAMETERS.match(rest.removesuffix("]>")) if begun else None
    if known is None:
        raise UnsupportedError(
            f"tensors of a type that penstock does not know: {text}",
            field=name,
        )
    order = known[1]
    if order and [int(axis) for axis in order.split(",")] != list(range(axes)):
        raise UnsupportedError(
            f"the axes of these tensors are permuted, [{order}], which penstock does not follow",
            field=name,
            hint="transpose the values and write the type without a permutation, or read it with pyarrow and pass"
            " its storage (chunk.storage): values and shapes as they lie",
        )


def check_shapes(array: Any) -> None:
    """Raise ValueError if the shape of a tensor does not match its values; the message names its index. Arrow's own
    validation treats shape and values as unrelated fields."""
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
    rough = np.prod(axes.astype(np.float64), axis=1)  # which does not overflow
    wrong = (axes < 0).any(axis=1) | (rough != counts)
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        shape = axes[place].tolist()
        raise ValueError(f"tensor {place} has {counts[place]} values and the shape {shape}")


def _without_views(type_: Any) -> Any:
    """The type with byte strings and texts in place of views of them."""
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
    """The array, with penstock's type for its tensors if the schema has that type."""
    if not (is_variable_tensor(type_) and _is_foreign(array.type)):
        return array
    return pa.ExtensionArray.from_storage(type_, array.storage.cast(type_.storage_type))


def own_batch(batch: Any, schema: Any) -> Any:
    """A batch of pyarrow's as one of a schema that `own_types` gave."""
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
    """Whether values are lists, of any length or a fixed one, but not maps."""
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
    """Whether values are views of byte strings or texts."""
    return bool(pa.types.is_binary_view(type_) or pa.types.is_string_view(type_))


def cast_values(array: Any, wanted: pa.DataType) -> Any:
    """`array.cast(wanted)`, also for an extension type over views: pyarrow 26 makes wrong bytes of it, or crashes,
    unless its storage is cast. For a slice of lists pyarrow casts the values of all lists, so a slice gets values of its
    own first."""
    array = _without_rest(array)
    if isinstance(array, pa.ExtensionArray) and is_bytes_view(array.storage.type):
        array = array.storage
        if isinstance(wanted, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(wanted, array.cast(wanted.storage_type))
    return array.cast(wanted)


def _without_rest(array: Any) -> Any:
    """The same nested values, without others that a slice shares buffers with."""
    if isinstance(array, pa.ExtensionArray):
        stored = array.storage
        kept = _without_rest(stored)
        return array if kept is stored else pa.ExtensionArray.from_storage(array.type, kept)
    if not (isinstance(array, pa.Array) and pa.types.is_nested(array.type)):
        return array
    return pa.concat_arrays([array]) if array.get_total_buffer_size() > 2 * array.nbytes else array


def storage_of(type_: pa.DataType) -> pa.DataType:
    """The type that values are kept as: that of an extension, or the type itself."""
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def row_bytes(type_: pa.DataType) -> int:
    """The minimum bytes of a row of a column, whether it has a value or not."""
    type_ = storage_of(type_)
    if pa.types.is_fixed_size_list(type_):
        return type_.list_size * row_bytes(type_.value_type)
    if pa.types.is_struct(type_):
        return sum(row_bytes(field.type) for field in type_)
    try:
        return (type_.bit_width + 7) // 8
    except ValueError:
        return 0 if pa.types.is_null(type_) else 4  # the end of a string or a list


def fixed_tensors(values: np.ndarray) -> pa.Array:
    """An array whose first axis counts records as a column: numbers if that is the only axis, else tensors of a fixed
    shape. Shares memory if the order is C.

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
    """Tensors of a shape with a zero in it: `num_records` empty lists."""
    type_ = pa.list_(flat.type, 0)
    return pa.FixedSizeListArray.from_buffers(type_, num_records, [None], children=[flat])

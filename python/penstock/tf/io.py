"""`tf.io`: reading, writing, parsing and decoding with TensorFlow's names."""

import penstock.tf.gfile as gfile  # noqa: PLR0402 - the other form imports the package, which imports this
from penstock.tf.byte_strings import (
    decode_base64,
    decode_compressed,
    deserialize_many_sparse,
    encode_base64,
    serialize_many_sparse,
    serialize_sparse,
)
from penstock.tf.codecs import (
    decode_and_crop_jpeg,
    decode_bmp,
    decode_gif,
    decode_image,
    decode_jpeg,
    decode_png,
    extract_jpeg_shape,
    is_jpeg,
)
from penstock.tf.csv_columns import decode_csv
from penstock.tf.decode_raw import decode_raw
from penstock.tf.encoders import encode_jpeg, encode_png
from penstock.tf.features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
)
from penstock.tf.files import matching_files, read_file, write_file
from penstock.tf.missing import absent_from
from penstock.tf.parsing import (
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)
from penstock.tf.tensor_proto import parse_tensor, serialize_tensor
from penstock.tf.writing import TFRecordOptions, TFRecordWriter

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_and_crop_jpeg",
    "decode_base64",
    "decode_bmp",
    "decode_compressed",
    "decode_csv",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_raw",
    "deserialize_many_sparse",
    "encode_base64",
    "encode_jpeg",
    "encode_png",
    "extract_jpeg_shape",
    "gfile",
    "is_jpeg",
    "matching_files",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "read_file",
    "serialize_many_sparse",
    "serialize_sparse",
    "serialize_tensor",
    "write_file",
]

__getattr__ = absent_from("tf.io")

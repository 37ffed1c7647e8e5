"""Strings, loops, tables, segments, matrices and sound: each expression is evaluated by TensorFlow and by
penstock.tf."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

TEXTS = ["The  Quick, brown fox!", "", "né É ß", "a-b-c", "  tail "]
BYTES = [bytes(range(n % 256)) * (1 + n // 256) for n in (0, 1, 4, 8, 16, 17, 32, 33, 64, 65, 300)]


def table(t: Any, buckets: int = 0) -> Any:
    keys, values = t.constant(["a", "b", "c"]), t.constant([5, 6, 7], t.int64)
    entries = t.lookup.KeyValueTensorInitializer(keys, values)
    if buckets:
        return t.lookup.StaticVocabularyTable(entries, buckets)
    return t.lookup.StaticHashTable(entries, -1)


def looped(t: Any) -> Any:
    array = t.TensorArray(t.int32, size=0, dynamic_size=True)
    return t.while_loop(
        lambda i, a: i < 4, lambda i, a: (i + 1, a.write(i, i * i)), (t.constant(0), array)
    )[1].stack()


def sparse(t: Any) -> Any:
    return t.SparseTensor([[0, 0], [0, 1], [2, 0]], t.constant([1, 2, 3]), [3, 2])


def ragged(t: Any) -> Any:
    return t.ragged.constant([[1, 2], [], [3]])


EQUAL: dict[str, Any] = {
    "split": lambda t: [t.strings.split("a b  c"), t.strings.split(TEXTS), t.strings.split(TEXTS, "-")],
    "split of a matrix": lambda t: t.strings.split([["a b", "c"], ["", "d e f"]]),
    "split at most": lambda t: t.strings.split(["a-b-c"], "-", 1),
    "join": lambda t: [t.strings.join(["x ", TEXTS, "!"]), t.strings.join([TEXTS, TEXTS], "+")],
    "reduce_join": lambda t: [
        t.strings.reduce_join([["a", "b"], ["c", "d"]], axis=a, separator="-", keepdims=k)
        for a in (0, 1, None, [0, 1])
        for k in (False, True)
    ],
    "case": lambda t: [
        t.strings.lower(TEXTS), t.strings.lower(TEXTS, "utf-8"), t.strings.upper(TEXTS), t.strings.strip(TEXTS),
    ],
    "lengths": lambda t: [t.strings.length(TEXTS), t.strings.length(TEXTS, "UTF8_CHAR")],
    "substr": lambda t: [
        t.strings.substr(TEXTS, 0, 3), t.strings.substr(["hello", "world"], [1, -3], [2, 9]),
        t.strings.substr("né!", 1, 1, "UTF8_CHAR"),
    ],
    "regex": lambda t: [
        t.strings.regex_replace(TEXTS, r"([^\w\s])", r"<\1>"), t.strings.regex_replace(TEXTS, r"\s+", " "),
        t.strings.regex_replace(TEXTS, "[[:punct:]]", "", replace_global=False),
        t.strings.regex_full_match(TEXTS, "[a-z]-.*"), t.strings.regex_replace("a.b", r"\.", r"\\\0"),
    ],
    "numbers as text": lambda t: [
        t.strings.as_string([1, -20]), t.strings.as_string([1.5, 1e9]), t.strings.as_string([True]),
        t.strings.as_string([1.5], precision=2, width=8), t.strings.as_string([7], width=4, fill="0"),
        t.strings.as_string([0.001], scientific=True), t.strings.as_string([1e-7], shortest=True),
    ],
    "text as numbers": lambda t: [
        t.strings.to_number(["1.5", "-2e3", " 7 "]), t.strings.to_number("12", t.int64),
        t.strings.to_number(["inf", ".5"], t.float64),
    ],
    "buckets": lambda t: [
        t.strings.to_hash_bucket_fast(BYTES, 1 << 40), t.strings.to_hash_bucket_strong(BYTES, 997, [3, 4]),
        t.strings.to_hash_bucket(BYTES, 1 << 40),
    ],
    "unicode": lambda t: [
        t.strings.unicode_decode(TEXTS, "UTF-8"), t.strings.unicode_split("né", "UTF-8"),
        t.strings.unicode_encode([[110, 233]], "UTF-8"), t.strings.bytes_split(["ab", "é"]),
        t.strings.unicode_transcode("né", "UTF-8", "UTF-16-BE"), t.strings.unicode_decode(b"a\xffb", "UTF-8"),
    ],
    "ngrams": lambda t: [
        t.strings.ngrams(["a", "b", "c"], 2), t.strings.ngrams(["a", "b", "c"], [1, 3]),
        t.strings.ngrams(t.ragged.constant([["a", "b"], ["c"]]), 2),
    ],
    "format": lambda t: [
        t.strings.format("{} of {}", (t.constant(1), t.constant([0.1, 2.0]))),
        t.strings.format("{}", t.constant([["a", "b"]])), t.strings.format("{}", t.zeros([9, 2], t.int32)),
    ],
    "loops": lambda t: [
        looped(t), t.while_loop(lambda i: True, lambda i: [i * 2], [t.constant(1)], maximum_iterations=5)[0],
        t.scan(lambda a, x: a + x, t.range(5)), t.scan(lambda a, x: a * x, t.range(1, 5), t.constant(2), reverse=True),
        t.foldl(lambda a, x: a - x, t.range(5)), t.foldr(lambda a, x: a - x, t.range(5)),
        t.case([(t.constant(False), lambda: t.constant(1)), (t.constant(True), lambda: t.constant(2))]),
        t.switch_case(t.constant(1), [lambda: t.constant(3), lambda: t.constant(4)]),
        t.switch_case(t.constant(7), {0: lambda: t.constant(3)}, default=lambda: t.constant(9)),
    ],
    "arrays of tensors": lambda t: [
        t.TensorArray(t.float32, 3).write(1, 2.0).stack(),
        t.TensorArray(t.int32, 2).unstack([[1, 2], [3, 4]]).concat(),
        t.TensorArray(t.int32, 0, dynamic_size=True, element_shape=[2]).stack(),
        t.TensorArray(t.int32, 2).unstack([5, 6]).gather([1, 1]), t.TensorArray(t.int32, 4).size(),
    ],
    "tables": lambda t: [
        table(t).lookup(t.constant(["b", "z"])), table(t).size(), table(t, 3).size(),
        table(t, 3).lookup(t.constant(["a", "some", "other", "words", "b"])),
        table(t).lookup(t.ragged.constant([["a"], ["z", "c"]])),
    ],
    "masks": lambda t: [
        t.sequence_mask([1, 3, 0]), t.sequence_mask([[1], [2]], 4, t.float32),
        t.compat.v1.where(t.constant([True, False]), t.ones([2, 3]), t.zeros([2, 3])),
        t.compat.v1.where([[True, False]], [[1, 2]], [[3, 4]]), t.compat.v1.where([True, False]),
    ],
    "unique": lambda t: [*t.unique([3, 1, 3]), *t.unique_with_counts(t.constant(["b", "a", "b"]), t.int64)],
    "grids": lambda t: [
        *t.meshgrid([1, 2, 3], [4, 5]), *t.meshgrid([1], [2, 3], indexing="ij"), t.linspace(0.0, 1.0, 5),
        t.roll(t.range(5), 2, 0), t.roll([[1, 2], [3, 4]], [1, 1], [0, 1]),
        t.searchsorted([1, 3, 5], [0, 3, 9]), t.searchsorted([1, 3, 5], [0, 3, 9], side="right"),
        t.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1),
    ],
    "scattered": lambda t: [
        t.scatter_nd([[1], [1], [3]], [1, 2, 3], [5]), t.tensor_scatter_nd_update([1, 2, 3], [[0]], [9]),
        t.tensor_scatter_nd_add([[1, 2], [3, 4]], [[1]], [[5, 5]]),
        t.tensor_scatter_nd_sub([1, 2, 3], [[0], [0]], [9, 1]), t.tensor_scatter_nd_min([1, 2, 3], [[0], [2]], [9, 1]),
        *t.dynamic_partition([1, 2, 3], [0, 1, 0], 2), t.dynamic_stitch([[0, 2], [1]], [[5, 6], [7]]),
        t.histogram_fixed_width([0.1, 0.9, 5.0, -1.0], [0.0, 1.0], 4),
    ],
    "gathered by batch": lambda t: [
        t.gather([[1, 2, 3], [4, 5, 6]], [[2, 0], [1, 1]], batch_dims=1),
        t.gather(t.reshape(t.range(12), [2, 3, 2]), [[2], [0]], batch_dims=1, axis=1),
        t.gather_nd([[1, 2], [3, 4]], [[1], [0]], batch_dims=1),
    ],
    "segments": lambda t: [
        f(t.constant([1.0, 2.0, 3.0]), [0, 0, 2])
        for f in (t.math.segment_sum, t.math.segment_max, t.math.segment_min, t.math.segment_prod, t.math.segment_mean)
    ] + [
        f(t.constant([[1, 2], [3, 4], [5, 6]]), [2, 0, -1], 3)
        for f in (t.math.unsorted_segment_sum, t.math.unsorted_segment_max, t.math.unsorted_segment_min)
    ],
    "more arithmetic": lambda t: [
        t.math.rint([0.5, 1.5, -2.5]), t.math.rsqrt([4.0]), t.sigmoid([0.0, 2.0]), t.math.log1p([1.0]),
        t.math.divide_no_nan([1.0, 2.0], [0.0, 4.0]), t.math.squared_difference([1, 2], [3, 5]),
        t.math.l2_normalize([[3.0, 4.0]], 1), t.add_n([t.constant([1]), t.constant([2])]), t.math.erf([0.5]),
        t.math.cumprod([1, 2, 3], exclusive=True), t.math.cumprod([1, 2, 3], reverse=True),
        t.math.reduce_logsumexp([[1.0, 2.0]], 1), t.math.reduce_euclidean_norm([3.0, 4.0]),
        t.math.count_nonzero([0, 2, 3]), t.math.zero_fraction([0.0, 1.0]), t.math.atan2([1.0], [2.0]),
        t.math.invert_permutation([2, 0, 1]), t.norm([[3.0, 4.0]], axis=1), t.norm([1.0, -2.0], ord=1),
    ],
    "counts": lambda t: [
        t.math.bincount([0, 1, 1, 3], minlength=6), t.math.bincount([0, 5], maxlength=3),
        t.math.bincount([0, 1, 1], weights=[0.5, 1.0, 2.0]), *t.math.top_k([3.0, 1.0, 3.0, 2.0], 3),
        *t.math.top_k([[1, 5], [7, 2]], 1), t.math.confusion_matrix([0, 1, 1], [1, 1, 0], num_classes=3),
        t.math.in_top_k([1, 0], [[0.1, 0.9], [0.2, 0.8]], 1), t.math.bincount([[0, 1], [1, 1]], axis=-1),
    ],
    "networks": lambda t: [
        t.nn.softmax([[1.0, 2.0]]), t.nn.log_softmax([[1.0, 2.0]]), t.nn.relu([-1.0, 2.0]), t.nn.relu6([9.0]),
        t.nn.leaky_relu([-1.0]), *t.nn.moments(t.constant([[1.0, 2.0], [3.0, 5.0]]), [0]), t.nn.gelu([0.5]),
        t.nn.depthwise_conv2d(t.reshape(t.range(32, dtype=t.float32), [1, 4, 4, 2]), t.ones([3, 2, 2, 1]), [1, 1, 1, 1], "SAME"),
        t.nn.depthwise_conv2d(t.ones([1, 5, 5, 1]), t.ones([2, 2, 1, 2]), [1, 2, 2, 1], "VALID"),
        t.nn.max_pool2d(t.reshape(t.range(16, dtype=t.float32), [1, 4, 4, 1]), 2, 2, "VALID"),
        t.nn.avg_pool2d(t.reshape(t.range(9, dtype=t.float32), [1, 3, 3, 1]), 2, 2, "SAME"), t.nn.softplus([1.0]),
        t.nn.embedding_lookup(t.constant([[1, 2], [3, 4]]), [1, 0]),
    ],
    "matrices": lambda t: [
        t.linalg.band_part(t.ones([3, 4]), 1, 0), t.linalg.diag([1, 2]), t.linalg.diag_part(t.constant([[1, 2], [3, 4]])),
        t.linalg.trace(t.constant([[1.0, 2.0], [3.0, 4.0]])), t.linalg.matvec([[1.0, 2.0]], [3.0, 4.0]),
        t.linalg.set_diag(t.constant([[1, 2], [3, 4]]), t.constant([9, 9])), t.linalg.matrix_transpose(t.constant([[1, 2]])), t.linalg.inv(t.constant([[2.0]])),
        t.tensordot(t.constant([[1.0, 2.0]]), t.constant([[3.0], [4.0]]), 1), t.einsum("ij,kj->ik", t.constant([[1.0, 2.0]]), t.constant([[3.0, 4.0]])),
    ],
    "signals": lambda t: [
        t.signal.frame(t.range(10), 4, 3), t.signal.frame(t.range(10.0), 4, 3, pad_end=True),
        t.signal.hann_window(5), t.signal.hann_window(6), t.signal.hamming_window(6, periodic=False),
        t.signal.rfft(t.range(8.0)), t.signal.irfft(t.signal.rfft(t.range(8.0))),
        t.abs(t.signal.stft(t.sin(t.range(100.0)), 16, 8)), t.signal.linear_to_mel_weight_matrix(4, 17, 8000),
        t.signal.mfccs_from_log_mel_spectrograms(t.sin(t.reshape(t.range(26.0), [2, 13]))),
        t.signal.rfft(np.arange(8.0)), t.signal.irfft(np.arange(5.0)), t.signal.fft(np.arange(4)), t.signal.ifft([1.0, 2.0]),
    ],
    "sound": lambda t: [
        *t.audio.decode_wav(t.audio.encode_wav(t.constant([[0.5, -1.0], [0.25, 2.0]]), 8000)),
        t.audio.decode_wav(t.audio.encode_wav([[0.5], [0.1]], 8000), 2, 3).audio,
        t.audio.encode_wav([[0.3]], 16000),
    ],
    "csv": lambda t: [
        *t.io.decode_csv(['1,"a, ""b""",2.5', "7,,"], [0, "none", t.constant([9.0])]),
        *t.io.decode_csv("1|x", [0, ""], field_delim="|"), *t.io.decode_csv("a,b,c", [""], select_cols=[1]),
        *t.io.decode_csv("NA,2", [5, 6], na_value="NA"),
    ],
    "bytes": lambda t: [
        t.io.decode_compressed(gzip.compress(b"abc"), "GZIP"), t.io.encode_base64(["a", "??>"]),
        t.io.decode_base64(["YQ", "Pz8-"]), t.io.encode_base64("a", pad=True),
    ],
    "sparse tensors as strings": lambda t: [
        *(t.io.parse_tensor(s, d) for s, d in zip(
            t.unstack(t.io.serialize_sparse(sparse(t))), (t.int64, t.int32, t.int64), strict=True)),
        t.sparse.to_dense(t.io.deserialize_many_sparse(t.io.serialize_many_sparse(sparse(t)), t.int32)),
    ],
    "ragged": lambda t: [
        t.RaggedTensor.from_sparse(sparse(t)), t.RaggedTensor.from_tensor([[1, 0], [2, 3]], padding=0),
        t.RaggedTensor.from_tensor([[1, 0], [2, 3]], lengths=[2, 1]), t.sparse.to_dense(ragged(t).to_sparse()),
        t.ragged.constant([[[1], [2, 3]], []]).merge_dims(0, 1), t.ragged.constant([[[1], [2, 3]], []]).merge_dims(1, 2),
        ragged(t) + 1, 10 - ragged(t), ragged(t) * ragged(t), -ragged(t), ragged(t) > 1,
        t.reduce_sum(ragged(t), axis=1), t.reduce_max(ragged(t)), t.ragged.stack([t.range(2), t.range(3)]),
        t.ragged.map_flat_values(t.square, ragged(t)), t.ragged.range([2, 0, 3]),
        t.ragged.boolean_mask(ragged(t), t.ragged.constant([[True, False], [], [True]])),
        t.ragged.row_splits_to_segment_ids([0, 2, 2, 3]), t.ragged.segment_ids_to_row_splits([0, 0, 2]),
    ],
    "bfloat16": lambda t: [
        t.cast(t.cast([1.0, 3.14159, 1e30], t.bfloat16), t.float32), t.cast(t.cast([1.1], t.bfloat16) * 2, t.float32),
    ],
    "functions of Python": lambda t: [
        t.py_function(lambda: np.float64(1.5), [], t.float32), t.py_function(lambda: np.array([1.7]), [], t.int32),
        t.py_function(lambda: 3, [], t.float32), t.py_function(lambda: (1, "a"), [], [t.int64, t.string])[0],
        t.py_function(lambda x: x.numpy() + 1, [2], t.int64),
    ],
    "resized by TensorFlow 1": lambda t: [
        f(t.reshape(t.range(60.0), [1, 4, 5, 3]), size, align_corners=c)
        for size in ([7, 9], [2, 3]) for c in (False, True)
        for f in (t.compat.v1.image.resize_bicubic, t.compat.v1.image.resize_bilinear, t.compat.v1.image.resize_nearest_neighbor)
    ],
    "words of TensorFlow 1": lambda t: [
        t.compat.v1.string_split(["a b", "c"]).values, t.compat.v1.string_split(["a b", "c"]).dense_shape,
        t.compat.v1.sparse_to_dense([1, 3], [5], 1), t.compat.v1.reduce_sum([[1, 2]], reduction_indices=1, keep_dims=True),
        t.compat.v1.string_to_number("3"), t.compat.v1.to_bfloat16([1.0]), t.compat.v1.is_nan([1.0]),
        t.compat.v2.range(3), t.compat.v1.ceil([0.5]),
    ],
}  # fmt: skip


def leaves(t: Any, value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(t, each)]
    if isinstance(value, t.RaggedTensor):
        return [*leaves(t, value.flat_values), *value.nested_row_splits]
    return [value]


@pytest.mark.parametrize("name", EQUAL)
def test_results_equal_tensorflow(name: str) -> None:
    ours, theirs = leaves(tf, EQUAL[name](tf)), leaves(tensorflow, EQUAL[name](tensorflow))
    assert len(ours) == len(theirs)
    for place, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert our.dtype.name == their.dtype.name, place
        assert our.shape.as_list() == their.shape.as_list(), place
        if our.dtype.name == "string":
            np.testing.assert_array_equal(our.numpy(), their.numpy())
        else:
            kind = our.dtype.name if our.dtype.name != "bfloat16" else "float32"
            mine, other = (np.asarray(v).astype(kind) for v in (our.numpy(), their.numpy()))
            np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-6, err_msg=str(place))


REFUSED: dict[str, Any] = {
    "no number": lambda t: t.strings.to_number("x"),
    "a number beyond": lambda t: t.strings.to_number("3000000000", t.int32),
    "no pattern": lambda t: t.strings.regex_replace("a", "(", ""),
    "a part beyond": lambda t: t.strings.substr("a", 3, 1),
    "fields missing": lambda t: t.io.decode_csv("1", [0, 0]),
    "a field required": lambda t: t.io.decode_csv(",1", [t.constant([], t.int32), 0]),
    "a quote inside": lambda t: t.io.decode_csv('a"b', [""]),
    "not base64": lambda t: t.io.decode_base64("%%"),
    "an array that does not grow": lambda t: t.TensorArray(t.int32, 1).write(3, 1),
    "negative padding": lambda t: t.pad([1], [[-1, 0]]),
    "too few values": lambda t: t.math.top_k([1.0], 2),
    "placeholders": lambda t: t.strings.format("{} {}", t.constant(1)),
    "a result of another type": lambda t: t.py_function(lambda: "a", [], t.float32),
    "two values for a key": lambda t: t.lookup.StaticHashTable(
        t.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), 0
    ),
    "no TPU": lambda t: t.distribute.cluster_resolver.TPUClusterResolver(),
    "not at the beginning": lambda t: t.RaggedTensor.from_sparse(
        t.SparseTensor([[0, 1]], t.constant([1]), [1, 2])
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_of_tensorflows_class(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        REFUSED[name](tensorflow)
    kind = type(theirs.value)
    with pytest.raises(getattr(tf.errors, kind.__name__, kind)):
        REFUSED[name](tf)


def test_tables_of_lines_are_tensorflows(tmp_path: Any) -> None:
    path = str(tmp_path / "vocabulary.txt")
    with open(path, "w") as file:
        file.write("the\t3\nfox\t4\n")

    def found(t: Any) -> list[Any]:
        index = t.lookup.TextFileIndex
        by_line = t.lookup.TextFileInitializer(path, t.string, 0, t.int64, index.LINE_NUMBER)
        by_column = t.lookup.TextFileInitializer(path, t.string, 0, t.int64, 1)
        words = t.constant(["fox", "the", "dog"])
        return [t.lookup.StaticHashTable(i, -1).lookup(words).numpy() for i in (by_line, by_column)]

    np.testing.assert_array_equal(found(tf), found(tensorflow))


def test_one_replica_does_what_a_strategy_does() -> None:
    strategy = tf.distribute.get_strategy()
    with strategy.scope():
        assert strategy.num_replicas_in_sync == 1
        dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.range(2))
        assert [int(strategy.run(lambda x: x + 1, args=(x,))) for x in dataset] == [1, 2]
    made = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(context.get_per_replica_batch_size(3))
    )
    assert len(made) == 3


def test_a_tensor_as_a_message_reads_in_both() -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = tf.make_tensor_proto(given).SerializeToString()
    np.testing.assert_array_equal(tensorflow.io.parse_tensor(text, tensorflow.float32), given)
    np.testing.assert_array_equal(tf.make_ndarray(tensorflow.make_tensor_proto(given)), given)

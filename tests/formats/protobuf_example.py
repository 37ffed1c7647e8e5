"""tf.train.Example as a protobuf class that is made at run time, without TensorFlow and without generated code."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _build() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="penstock_test_example.proto", package="penstock_test", syntax="proto3"
    )

    def field(message: Any, name: str, number: int, kind: int, **more: Any) -> None:
        label = more.pop("label", kinds.LABEL_OPTIONAL)
        if "type_name" in more:
            more["type_name"] = f".penstock_test.{more['type_name']}"
        message.field.add(name=name, number=number, type=kind, label=label, **more)

    repeated = kinds.LABEL_REPEATED
    for name, kind in [
        ("BytesList", kinds.TYPE_BYTES),
        ("FloatList", kinds.TYPE_FLOAT),
        ("Int64List", kinds.TYPE_INT64),
    ]:
        field(file.message_type.add(name=name), "value", 1, kind, label=repeated)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(["Bytes", "Float", "Int64"], start=1):
        kind = {"type_name": f"{name}List", "oneof_index": 0}
        field(feature, f"{name.lower()}_list", number, kinds.TYPE_MESSAGE, **kind)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, kinds.TYPE_STRING)
    field(entry, "value", 2, kinds.TYPE_MESSAGE, type_name="Feature")
    map_of = {"type_name": "Features.FeatureEntry", "label": repeated}
    field(features, "feature", 1, kinds.TYPE_MESSAGE, **map_of)
    example = file.message_type.add(name="Example")
    field(example, "features", 1, kinds.TYPE_MESSAGE, type_name="Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("penstock_test.Example"))


Example = _build()

"""The payloads of framed formats: Examples, images and protobuf messages."""

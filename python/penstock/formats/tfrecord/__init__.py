"""TFRecord."""

"""`tf.compat.v1`: the few names of TensorFlow 1 that programs which read and write records use."""

from __future__ import annotations

from types import SimpleNamespace

# The other form would import the package, which imports this.
import penstock.tf.gfile as gfile  # noqa: PLR0402
import penstock.tf.io as io  # noqa: PLR0402
import penstock.tf.python_io as python_io  # noqa: PLR0402
import penstock.tf.train as train  # noqa: PLR0402

v1 = SimpleNamespace(
    gfile=gfile,
    io=SimpleNamespace(
        **{name: getattr(io, name) for name in io.__all__},
        tf_record_iterator=python_io.tf_record_iterator,
    ),
    python_io=python_io,
    train=train,
)

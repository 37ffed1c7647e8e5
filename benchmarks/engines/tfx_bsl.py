"""tfx-bsl: Examples to Arrow record batches in C++. It verifies no checksum, and gets payloads that are taken from
their frames here, at known offsets."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.data import Data
from benchmarks.engines.limit import mapped
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "tensorflow"
BATCH_RECORDS = 1024


def parse(data: Data) -> Job:
    """Batches of 1,024 payloads to record batches of list columns."""
    import numpy as np
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    from benchmarks import checks

    schema = schema_pb2.Schema()
    kinds = {
        "id": schema_pb2.INT,
        "label": schema_pb2.INT,
        "embedding": schema_pb2.FLOAT,
        "text": schema_pb2.BYTES,
    }
    for name, kind in kinds.items():
        schema.feature.add(name=name, type=kind)
    decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
    offsets = np.load(data.folder / "offsets.npy").tolist()
    file = mapped(data.plain)

    def work(check: bool) -> Outcome:
        count = total = 0
        for first in range(0, data.num_records, BATCH_RECORDS):
            ends = offsets[first : first + BATCH_RECORDS + 1]
            payloads = [file[a + 12 : b - 4] for a, b in pairwise(ends)]
            batch = decoder.DecodeBatch(payloads)
            count += batch.num_rows
            if check:
                total += checks.arrow_sum(batch)
        return Outcome(count, "columns", total & checks.WRAP)

    return Job(work)


JOBS = {"parse-small": {"ExamplesToRecordBatchDecoder, no checksums": parse}}

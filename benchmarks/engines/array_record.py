"""ArrayRecord with one record per group, uncompressed, and `seek` then `read` without read-ahead. With its defaults,
it is 300 times slower for records in random order."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def take(data: Data) -> Job:
    """Undecoded payloads. A batch of 256 is in memory at a time."""
    from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

    from benchmarks import checks, generate

    path = data.copy("group1.array_record")
    if not path.exists():
        small = data.size == "small"
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        chunks = generate.small_rows if small else generate.large_rows
        for rows in chunks(data.num_records):
            for payload in (generate.small_payloads if small else generate.large_payloads)(rows):
                writer.write(payload)
        writer.close()
    reader = ArrayRecordReader(str(path), "readahead_buffer_size:0,max_parallelism:0")
    batches = [b.tolist() for b in checks.take_batches(data)]

    def record(number: int) -> bytes:
        reader.seek(number)
        return reader.read()

    def work(check: bool) -> Outcome:
        count = total = 0
        for batch in batches:
            payloads = [record(i) for i in batch]
            count += len(payloads)
            if check:
                total += checks.payload_sum(payloads)
        return Outcome(count, "take payloads", total)

    return Job(work)


JOBS = {
    "take-small": {"seek then read, group_size:1, uncompressed": take},
    "take-large": {"seek then read, group_size:1, uncompressed": take},
}

"""Other containers, read in order and at random by penstock and by their own libraries."""

from __future__ import annotations

from benchmarks.cases.case import BEST_RIVAL, Case, Goal

COPY = "containers_limit: read(), then a copy"


def _scan(
    container: str, rival: str, small: float, large: float, *, of: str = BEST_RIVAL
) -> tuple[Case, Case]:
    return tuple(  # type: ignore[return-value]
        Case(
            name=f"{container}-{size}",
            says=f"{'1,000,000 payloads of 150 bytes' if size == 'small' else '20,000 of 100 KB'} "
            f"as binary columns; {rival} gives them one by one",
            size=size,
            limits={"": COPY},
            goals=goals,
        )
        for size, goals in (
            ("small", (Goal("penstock: 1 thread", at_least=small, of=of),)),
            ("large", (Goal("penstock: 1 thread", at_least=large, of=COPY),)),
        )
    )


CASES = (
    *_scan("tar", "webdataset", 10, 0.8),
    *_scan("recordio", "MXNet's reader", 10, 0.8, of="mxnet:"),
    *_scan("msgpack", "msgpack", 1, 0.8),
    *(
        Case(
            name=f"{container}-take-{size}",
            says=f"256 records at random; the rival seeks, reads and unpacks in Python, by offsets "
            f"that it has ({size} records)",
            size=size,
            goals=(Goal("penstock: pread", at_least=0.95), Goal("penstock: mmap", at_least=0.95)),
        )
        for container in ("recordio", "msgpack")
        for size in ("small", "large")
    ),
    *(
        Case(
            name=f"convert-{name}",
            says=f"4,000 JPEGs of 75 KB, {a} to {b}, from tmpfs to tmpfs",
            size="",
            goals=(
                Goal("penstock: 2 threads", at_least=1 / 1.5, of="containers_limit: cat in > out"),
            ),
        )
        for name, a, b in (
            ("tfrecord-tar", "TFRecord", "tar"),
            ("tar-beton", "tar", ".beton (JPEGs as they are)"),
            ("beton-tfrecord", ".beton", "TFRecord"),
        )
    ),
)

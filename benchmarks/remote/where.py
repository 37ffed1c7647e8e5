"""The objects that all rows read, and where they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

SHARDS = 50
PER_SHARD = 80
RECORD_BYTES = 100_000
NUM_RECORDS = SHARDS * PER_SHARD
NUM_BYTES = NUM_RECORDS * RECORD_BYTES
BATCH = 256
REPEATS = 3
REGION = "us-east-1"
ENVIRONMENT = "BENCHMARKS_REMOTE"


@dataclass(frozen=True)
class Where:
    """What a row needs to know. It is passed to its process in the environment."""

    endpoint: str
    """The address of the store: at the end of the link, or on loopback."""
    bucket: str
    key_id: str
    secret: str
    scratch: str
    """A folder for local copies, which is empty when a row begins."""
    addresses: dict[str, list[str]]
    """By format: the addresses of all shards, with signatures, for programs that know only HTTP."""

    def name(self, shard: int, format: str) -> str:
        """The key of a shard."""
        return f"{format}/{shard:05}.{format}"

    def names(self, format: str) -> list[str]:
        """The keys of all shards."""
        return [self.name(shard, format) for shard in range(SHARDS)]

    def to_environment(self) -> dict[str, str]:
        """The environment of a process that runs a row."""
        return {
            ENVIRONMENT: json.dumps(asdict(self)),
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "S3_ENDPOINT_URL": self.endpoint,
        }

    @staticmethod
    def from_environment() -> Where:
        """The same in that process."""
        return Where(**json.loads(os.environ[ENVIRONMENT]))


def repeated(job: Callable[[Where], Callable[[], Any]]) -> Callable[[Where], Callable[[], Any]]:
    """A job that reads everything several times, so that little of its processor time is that of its beginning."""

    def job_of(where: Where) -> Callable[[], Any]:
        timed = job(where)

        def several() -> Any:
            found = [timed() for _ in range(REPEATS)]
            counts = [one[0] if isinstance(one, tuple) else one for one in found]
            return sum(counts)

        return several

    return job_of


def shard_size() -> int:
    """The approximate bytes of a shard."""
    return PER_SHARD * RECORD_BYTES

"""Continue reading after damage: find what is lost, and where records continue.

`DamageScan` finds every record of a file and every fault in it, for `verify` and `repair`. Its tasks return `Found`,
which holds `FoundFrames` and `Bad`. A reader that skips damage uses the chunks or frames that a scan accepts.
"""

from penstock.framing.damage._chunks import chunks_around_damage, frames_around_damage
from penstock.framing.damage._parts import Bad, Found, FoundFrames, Task, left_out
from penstock.framing.damage._scan import DamageScan

__all__ = [
    "Bad",
    "DamageScan",
    "Found",
    "FoundFrames",
    "Task",
    "chunks_around_damage",
    "frames_around_damage",
    "left_out",
]

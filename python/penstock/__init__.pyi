"""The public names of penstock and where each is found: the one table, for type checkers and for `__init__.py`."""

from penstock import bench as bench, describe as describe, features as features
from penstock.adapters.hf import to_hf as to_hf
from penstock.columns import types as types
from penstock.contract.format import SkippedRegion as SkippedRegion
from penstock.contract.summary import Summary as Summary
from penstock.contract.regions import Region as Region
from penstock.contract.report import Finding as Finding, Report as Report
from penstock.datasets.dataset import Dataset as Dataset
from penstock.datasets.tasks import ReadTask as ReadTask
from penstock.datasets.shard import Shard as Shard
from penstock.datasets.open import open as open
from penstock.datasets.packed import packed as packed, pieces as pieces
from penstock.errors import (
    ChangedError as ChangedError,
    ChecksumError as ChecksumError,
    FormatError as FormatError,
    InternalError as InternalError,
    LimitError as LimitError,
    PenstockError as PenstockError,
    RecordIndexError as RecordIndexError,
    SchemaError as SchemaError,
    StaleIndexError as StaleIndexError,
    StateError as StateError,
    StorageError as StorageError,
    TruncatedError as TruncatedError,
    UnsupportedError as UnsupportedError,
)
from penstock.limits import Limits as Limits
from penstock.loader.coverage import audit as audit, plan as plan
from penstock.loader.images import Image as Image
from penstock.loader.loader import Loader as Loader
from penstock.loader.padding import Pad as Pad
from penstock.loader.reports import PlanReport as PlanReport
from penstock.loader.sequences import cu_seqlens as cu_seqlens
from penstock.loader.stats import LoaderStats as LoaderStats
from penstock.orders import (
    Balanced as Balanced,
    Blocked as Blocked,
    Buffered as Buffered,
    Interleaved as Interleaved,
    Mixture as Mixture,
    Order as Order,
    Sequential as Sequential,
    Shuffled as Shuffled,
    Weighted as Weighted,
)
from penstock.payloads import images as images
from penstock.payloads.images import decode_images as decode_images, encode_images as encode_images
from penstock.printing import tables as tables
from penstock.storage.cache import (
    Cache as Cache,
    CachedFolder as CachedFolder,
    CacheUsage as CacheUsage,
)
from penstock.storage.pipes import Pipe as Pipe
from penstock.storage.skipped import SkippedFile as SkippedFile
from penstock.verbs.append.append import append as append
from penstock.verbs.check.clean import Left as Left, clean as clean
from penstock.verbs.check.index import index as index
from penstock.verbs.check.repair import repair as repair
from penstock.verbs.check.verify import verify as verify
from penstock.verbs.choose.dedupe import dedupe as dedupe
from penstock.verbs.choose.sort import sort as sort
from penstock.verbs.choose.split import split as split, write_splits as write_splits
from penstock.verbs.convert.convert import convert as convert
from penstock.verbs.diff.diff import diff as diff
from penstock.verbs.diff.differences import (
    Diff as Diff,
    FieldDiff as FieldDiff,
    RecordsDiff as RecordsDiff,
    ValueDiff as ValueDiff,
)
from penstock.verbs.fields.bake import bake_fields as bake_fields
from penstock.verbs.fields.fields import (
    add_fields as add_fields,
    drop_fields as drop_fields,
    rename_fields as rename_fields,
    replace_fields as replace_fields,
)
from penstock.verbs.fields.overlays import (
    OverlayInfo as OverlayInfo,
    overlays as overlays,
    remove_overlay as remove_overlay,
)
from penstock.verbs.manifest.manifest import (
    manifest as manifest,
    verify_manifest as verify_manifest,
)
from penstock.verbs.inspect.abilities import (
    Abilities as Abilities,
    Ability as Ability,
    abilities as abilities,
)
from penstock.verbs.inspect.info import Info as Info, ShardInfo as ShardInfo, info as info
from penstock.verbs.inspect.layout import Layout as Layout, layout as layout
from penstock.verbs.inspect.observe import ImageSizes as ImageSizes
from penstock.verbs.inspect.schemas import (
    FieldPresence as FieldPresence,
    FileSchema as FileSchema,
    Schemas as Schemas,
    schemas as schemas,
)
from penstock.verbs.inspect.stats import FieldStats as FieldStats, Stats as Stats, stats as stats
from penstock.verbs.inspect.tally import Histogram as Histogram, Spread as Spread
from penstock.verbs.write.write import write as write

__version__: str

"""The feature store: pooled features of a list of images in a folder of Parquet shards, resumable and read in blocks.

``docs/features.md`` describes the format.
"""

try:
    import numpy as _numpy  # noqa: F401  # only to say, here and once, what is missing
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as absent:
    raise ImportError(
        f"compact_bilinear.features keeps features with NumPy and PyArrow, but {absent.name} cannot be imported.\n"
        'Write `pip install "compact-bilinear[road]"`.'
    ) from absent

from .layout import MANIFEST, Shard
from .reader import FeatureStore
from .writer import FeatureWriter, ShardWriter

__all__ = ["MANIFEST", "FeatureStore", "FeatureWriter", "Shard", "ShardWriter"]

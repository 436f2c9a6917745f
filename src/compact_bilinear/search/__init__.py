"""Search: an index of features on the disk, and who is near to whom in it.

``docs/search.md`` describes the files and says how to choose.
"""

try:
    import faiss as _faiss  # noqa: F401  # only to say, here and once, what is missing
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as absent:
    raise ImportError(
        f"compact_bilinear.search finds neighbours with FAISS and PyArrow, but {absent.name} cannot be imported.\n"
        'Write `pip install "compact-bilinear[road,search]"`.'
    ) from absent

from .codes import Codes
from .duplicates import Group, duplicates
from .engine import Engine, choose_engine
from .index import Found, Index, Item
from .measure import Measured, measure
from .writer import Done, IndexWriter

__all__ = [
    "Codes",
    "Done",
    "Engine",
    "Found",
    "Group",
    "Index",
    "IndexWriter",
    "Item",
    "Measured",
    "choose_engine",
    "duplicates",
    "measure",
]

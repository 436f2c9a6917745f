"""From files to image tensors: what images there are, and batches of them."""

try:
    import numpy as _numpy  # noqa: F401  # only to say, here and once, what is missing
    import PIL as _pillow  # noqa: F401
except ImportError as absent:
    raise ImportError(
        f"compact_bilinear.images reads images with Pillow and NumPy, but {absent.name} cannot be imported.\n"
        'Write `pip install "compact-bilinear[road]"`.'
    ) from absent

from .decode import BrokenImage
from .image_list import ImageList
from .loader import Batch, load_images, shuffled
from .recognize import read_images
from .transforms import Transform

__all__ = ["Batch", "BrokenImage", "ImageList", "Transform", "load_images", "read_images", "shuffled"]

"""From features to decisions: classifiers, how good they are, and how far a few images take them."""

try:
    import sklearn as _sklearn  # noqa: F401  # only to say, here and once, what is missing
except ImportError as absent:
    raise ImportError(
        f"compact_bilinear.classify builds on scikit-learn, but {absent.name} cannot be imported.\n"
        'Write `pip install "compact-bilinear[road]"`.'
    ) from absent

from .logistic_regression import LogisticRegression
from .nearest_mean import NearestMean
from .quadratic_kernel_map import QuadraticKernelMap

__all__ = ["LogisticRegression", "NearestMean", "QuadraticKernelMap"]

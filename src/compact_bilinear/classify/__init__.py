"""From features to decisions."""

from .logistic_regression import LogisticRegression

__all__ = ["LogisticRegression"]

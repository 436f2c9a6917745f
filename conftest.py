"""Names that every docstring example can use without importing them."""

from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _docstring_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch

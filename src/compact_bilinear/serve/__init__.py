"""Serve: a model behind HTTP, with a page for people. ``docs/serve.md`` says what is asked and answered.

A request's way is the layout::

    guard ─▶ uploads ─▶ predictor.pixels, in a pool ─▶ batcher ─▶ predictor, batch by batch in threads ─▶ answers
"""

try:
    import fastapi as _fastapi  # noqa: F401  # only to say, here and once, what is missing
    import prometheus_client as _prometheus  # noqa: F401
    import python_multipart as _multipart  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as absent:
    raise ImportError(
        f"compact_bilinear.serve answers with FastAPI and uvicorn, but {absent.name} cannot be imported.\n"
        'Write `pip install "compact-bilinear[serve]"`.'
    ) from absent

from .app import build_app
from .limits import Limits
from .predictor import Predictor

__all__ = ["Limits", "Predictor", "build_app"]

"""From records to what is read: tables, figures, what they say about the paper's claims, and one page with all of it."""

from importlib.util import find_spec as _find_spec

for _needed in ("jinja2", "matplotlib"):  # only to say, here and once, what is missing
    if _find_spec(_needed) is None:
        raise ImportError(
            f"compact_bilinear.report draws with Matplotlib and writes with Jinja2, but {_needed} cannot be imported.\n"
            'Write `pip install "compact-bilinear[road]"`.'
        )

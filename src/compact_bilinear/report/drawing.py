"""A figure as SVG that fits into a page, and as files: the same figure gives the same bytes.

Matplotlib draws; what it writes is then made part of a page. Ink becomes the colour of the text around it, and every other
colour a variable, which the page sets where it is dark. Text stays text, in the font of the page. Identifiers get a prefix, so
that several figures can be in one page.
"""

import hashlib
import html
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..whole_file import WholeFile, write_whole
from .names import LOOKS, OTHER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.6, 3.5  # inches; their 331 points are the width of a phone, where a point is then a pixel
INK = "#1b1d20"  # stands for the colour of the text; no other colour is the same
DARK = {each.light: each.dark for each in (*LOOKS.values(), OTHER)}  # of each colour on light pages the one on dark pages
STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that sizes are the same everywhere
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may have a $
}


@dataclass(frozen=True)
class Drawing:
    """What can be drawn, and what it says in words.

    Args:
        title: what it shows, in a few words.
        alternative: its main numbers in a sentence or two, for those who cannot see it.
        paint: draws into a figure of matplotlib.
        caption: what stands below it in a page.
        height: of the figure in inches.
    """

    title: str
    alternative: str
    paint: Callable[["Figure"], None]
    caption: str = ""
    height: float = HEIGHT

    def svg(self) -> str:
        """As an element for a page: as wide as its place, its colours ``currentColor`` and ``var(--cRRGGBB)`` of ``DARK``."""
        svg = self._bare().replace(INK, "currentColor")
        for light in DARK:
            svg = svg.replace(light, f"var(--c{light[1:]}, {light})")
        return svg

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write it as NAME.svg and NAME.png, both on white.

        Args:
            folder: is there already.
            name: of both files, without ending.

        Returns:
            Both files.
        """
        svg, png = folder / f"{name}.svg", folder / f"{name}.png"
        opening, rest = self._bare().split(">", 1)
        white = '<rect width="100%" height="100%" fill="#ffffff"/>'
        title = f"<title>{html.escape(self.title)}</title>"
        write_whole(svg, f'<?xml version="1.0" encoding="utf-8"?>\n{opening} font-family="sans-serif">\n{title}{white}{rest}\n')
        with WholeFile(png) as part:
            self._save(part, "png")
        return svg, png

    def _bare(self) -> str:
        """The element, with identifiers of its own and its text alternative."""
        drawn = io.StringIO()
        self._save(drawn, "svg")
        svg = drawn.getvalue()
        prefix = f"f{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
        svg = svg[svg.index("<svg") :].strip()
        svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
        svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, count=1, flags=re.DOTALL)  # it means all of a page
        svg = re.sub(r'( id="|url\(#|href="#)', lambda match: match[0] + prefix, svg)
        width, height = round(72 * WIDTH), round(72 * self.height)
        words = f'role="img" aria-label="{html.escape(" ".join(self.alternative.split()))}"'
        names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        opening = f'<svg {names} viewBox="0 0 {width} {height}" {words} stroke-linejoin="round">'
        return re.sub(r"<svg.*?>", lambda _: opening, svg, count=1, flags=re.DOTALL)

    def _save(self, target: Any, form: str) -> None:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        style: Any = {**mpl.rcParamsDefault, **STYLE, "backend": mpl.rcParams["backend"], "svg.hashsalt": self.title}
        if form == "png":
            style["savefig.facecolor"] = "white"
        without: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type") if form == "svg" else ("Software",))
        with mpl.rc_context(style):
            figure = Figure(figsize=(WIDTH, self.height), layout="constrained")
            self.paint(figure)
            figure.savefig(target, format=form, dpi=72 if form == "svg" else 200, metadata=without)

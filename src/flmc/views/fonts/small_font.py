"""The usual font with Latin signs only, for PDFs.

A PDF holds the signs that it needs, and to take them out of a font with thousands takes longer than
to draw the picture. Signs, their widths and the font's name in the PDF are the same."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FAMILY = "flmc small"
"""How the small font is called inside this process."""
_SIGNS = frozenset(map(chr, (*range(0x20, 0x7F), *range(0xA0, 0x100), 0x2212)))
"""Signs of the small font: Latin ones, and the minus of numbers on an axis."""


def families_for(figure: Figure) -> list[str]:
    """Families of sans-serif fonts to save a drawn figure with: the small font first, if it has all
    signs.

    Parameters
    ----------
    figure
        A figure that was drawn, so that its axes have their numbers.
    """
    from matplotlib import rcParams
    from matplotlib.text import Text

    usual: list[str] = rcParams["font.sans-serif"]
    signs = {sign for text in figure.findobj(Text) for sign in text.get_text()}
    return [_FAMILY, *usual] if signs - {"\n"} <= _SIGNS and _make_known() else usual


@cache
def _make_known() -> bool:
    """Make the small font known to Matplotlib; False if the usual one is not TrueType."""
    from fontTools import subset
    from matplotlib import font_manager

    found = font_manager.findfont(font_manager.FontProperties(family=["sans-serif"]))
    if not found.endswith(".ttf"):
        return False
    directory = tempfile.TemporaryDirectory(prefix="flmc-font-")
    atexit.register(directory.cleanup)
    path = Path(directory.name) / "small.ttf"
    # Rules for other scripts than these signs are written in would be looked through for every PDF.
    options = subset.Options(
        glyph_names=True,
        name_IDs=["*"],
        drop_tables=["FFTM"],
        layout_scripts=["DFLT", "latn"],
        layout_features=["kern", "liga"],
    )
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, _SIGNS))
    with subset.load_font(found, options) as small:
        subsetter.subset(small)
        for record in small["name"].names:
            if record.nameID in (1, 16):  # the family; the name in a PDF is another
                record.string = _FAMILY
        small.save(path)
    font_manager.fontManager.addfont(path)
    return True

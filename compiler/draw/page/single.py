"""A page of one picture."""

from __future__ import annotations

from html import escape

from treadle.compiler.draw.svg import Picture
from treadle.compiler.draw.theme import DARK, LIGHT


def page_of(picture: Picture) -> str:
    """A picture as an HTML page that scrolls sideways where the picture is wider than the window."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(picture.title)}</title>
<style>
body {{ margin: 0; background: {LIGHT.paper}; }}
@media (prefers-color-scheme: dark) {{ body {{ background: {DARK.paper}; }} }}
main {{ overflow-x: auto; }}
@media print {{ body {{ background: none; }} svg {{ max-width: 100%; height: auto; }} }}
</style>
<main tabindex="0">
{picture.svg()}</main>
</html>
"""

"""A small writer of SVG pictures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

OURS: Final = "#0b7a75"
OTHER_COLOUR: Final = "#b3541e"


class Picture:
    """An SVG picture on white, in its own units; text is escaped."""

    def __init__(self, width: int, height: int) -> None:
        """Begin a picture of this size."""
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
        ]

    def text(self, x: float, y: float, label: str, anchor: str = "start", **more: str | float) -> None:
        """Write text; ``more`` are attributes, ``_`` for ``-``."""
        named = " ".join(f'{name.replace("_", "-")}="{value}"' for name, value in more.items())
        position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self._parts.append(f"<text {position} {named}>{escape(label)}</text>")

    def path(self, path: str, colour: str = "#ddd") -> None:
        """Draw a thin line along an SVG path."""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}"/>')

    def curve(self, points: Iterable[tuple[float, float]]) -> None:
        """Connect the points of our policy."""
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{line}" fill="none" stroke="{OURS}" stroke-width="2"/>')

    def dot(self, x: float, y: float, colour: str, title: str = "", *, radius: int = 4) -> None:
        """Draw a translucent point; a browser shows its title."""
        style = f'r="{radius}" fill="{colour}" fill-opacity="0.7"'
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" {style}><title>{escape(title)}</title></circle>'
        )

    def __str__(self) -> str:
        """Return the SVG."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"

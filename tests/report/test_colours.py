"""Colours of a figure are distinguishable with colour vision deficiencies, in both schemes."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from itertools import combinations
from typing import Final

import pytest

CSS: Final = (files("rehearsal.report") / "page.css").read_text("utf-8")
TOGETHER: Final = (("spot", "on-demand"), ("announced", "lost"), ("ready-fill", "lost"))
"""Colours that mean different things in one picture."""

# Linear sRGB as seen without long, middle, or short cones: Machado, Oliveira, Fernandes 2009, severity 1.0.
VISIONS: Final = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
    "grey": ((0.2126, 0.7152, 0.0722),) * 3,
}
LEAST: Final = {"grey": 10.0}
"""A step of lightness is enough in grey; else 20, where 2.3 is just seen (CIE 1976)."""


def linear(colour: str) -> tuple[float, ...]:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def cielab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = (min(max(c, 0.0), 1.0) for c in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_one_figure_are_distinguishable(vision: str, scheme: int) -> None:
    root = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[scheme]
    named = dict(re.findall(r"--([\w-]+): #(\w{6});", root))
    matrix = VISIONS[vision]

    def seen(name: str) -> tuple[float, float, float]:
        colour = linear(named[name])
        return cielab(tuple(sum(m * c for m, c in zip(row, colour, strict=True)) for row in matrix))

    apart = {pair: math.dist(*map(seen, pair)) for together in TOGETHER for pair in combinations(together, 2)}
    assert not {pair: far for pair, far in apart.items() if far < LEAST.get(vision, 20.0)}

"""A bitmap font of 36 characters, 5 by 7 pixels: text as images, to try the service without scanned pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

WIDTH: Final = 5
HEIGHT: Final = 7
GAP: Final = 1
"""Empty columns between characters."""
_ROWS: Final = """
A .###. #...# #...# ##### #...# #...# #...#
B ####. #...# #...# ####. #...# #...# ####.
C .#### #.... #.... #.... #.... #.... .####
D ####. #...# #...# #...# #...# #...# ####.
E ##### #.... #.... ####. #.... #.... #####
F ##### #.... #.... ####. #.... #.... #....
G .#### #.... #.... #..## #...# #...# .####
H #...# #...# #...# ##### #...# #...# #...#
I ##### ..#.. ..#.. ..#.. ..#.. ..#.. #####
J ..### ...#. ...#. ...#. ...#. #..#. .##..
K #...# #..#. #.#.. ##... #.#.. #..#. #...#
L #.... #.... #.... #.... #.... #.... #####
M #...# ##.## #.#.# #.#.# #...# #...# #...#
N #...# ##..# #.#.# #.#.# #..## #...# #...#
O .###. #...# #...# #...# #...# #...# .###.
P ####. #...# #...# ####. #.... #.... #....
Q .###. #...# #...# #...# #.#.# #..#. .##.#
R ####. #...# #...# ####. #.#.. #..#. #...#
S .#### #.... #.... .###. ....# ....# ####.
T ##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#..
U #...# #...# #...# #...# #...# #...# .###.
V #...# #...# #...# #...# #...# .#.#. ..#..
W #...# #...# #...# #.#.# #.#.# ##.## #...#
X #...# #...# .#.#. ..#.. .#.#. #...# #...#
Y #...# #...# .#.#. ..#.. ..#.. ..#.. ..#..
Z ##### ....# ...#. ..#.. .#... #.... #####
0 .###. #..## #.#.# #.#.# #.#.# ##..# .###.
1 ..#.. .##.. #.#.. ..#.. ..#.. ..#.. #####
2 .###. #...# ....# ..##. .#... #.... #####
3 ####. ....# ....# .###. ....# ....# ####.
4 #..#. #..#. #..#. ##### ...#. ...#. ...#.
5 ##### #.... ####. ....# ....# #...# .###.
6 .###. #.... #.... ####. #...# #...# .###.
7 ##### ....# ...#. ..#.. ..#.. .#... .#...
8 .###. #...# #...# .###. #...# #...# .###.
9 .###. #...# #...# .#### ....# ....# .###.
"""
GLYPHS: Final = {
    row[0]: np.array([[pixel == "#" for pixel in line] for line in row[2:].split()], dtype=np.float32)
    for row in _ROWS.strip().splitlines()
}
"""Pixels of each character: 1 is ink."""


def draw(lines: Sequence[str], scale: int = 2, ink: int = 30, paper: int = 220) -> bytes:
    """Return lines of text as an image in the format PGM (P5).

    Args:
        lines: at least one, of the characters of ``GLYPHS`` and spaces; no line starts with a space.
        scale: pixels of the image for a pixel of the font.
        ink: gray value of the characters.
        paper: gray value of the background.
    """
    columns = max(map(len, lines)) * (WIDTH + GAP)
    page = np.zeros((len(lines) * (HEIGHT + 3), columns), dtype=np.float32)
    for number, text in enumerate(lines):
        top = number * (HEIGHT + 3)
        for position, character in enumerate(text):
            if character != " ":
                left = position * (WIDTH + GAP)
                page[top : top + HEIGHT, left : left + WIDTH] = GLYPHS[character]
    page = np.pad(page, 4).repeat(scale, axis=0).repeat(scale, axis=1)
    gray = (paper + (ink - paper) * page).astype(np.uint8)
    return b"P5 %d %d 255\n" % (gray.shape[1], gray.shape[0]) + gray.tobytes()

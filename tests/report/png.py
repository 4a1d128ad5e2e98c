"""A reader for Chromium's PNGs: 8 bits per channel, RGB or RGBA, not interlaced."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Png:
    """A decoded picture: ``rows[y]`` holds ``channels`` bytes a pixel."""

    width: int
    channels: int
    rows: list[bytes]

    def colours(self, left: float, top: float, right: float, bottom: float) -> Counter[Colour]:
        """Count the colours of a box, in pixels of the picture."""
        found: Counter[Colour] = Counter()
        for row in self.rows[int(top) : int(bottom)]:
            part = row[int(left) * self.channels : int(right) * self.channels]
            found.update(zip(*(part[c :: self.channels] for c in range(3)), strict=True))
        return found


def read(path: Path) -> Png:
    """Decode a PNG; raise ``ValueError`` for a kind that Chromium does not write."""
    data = path.read_bytes()
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if depth != 8 or kind not in (2, 6) or interlaced:
        raise ValueError(
            f"{path}: depth {depth}, colour type {kind}, interlace {interlaced} is not read here"
        )
    packed, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    channels = 3 if kind == 2 else 4
    raw, stride = zlib.decompress(packed), width * channels
    rows, above = [], bytes(stride)
    for y in range(height):
        line = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        above = _unfiltered(line[0], line[1:], above, channels)
        rows.append(above)
    return Png(width, channels, rows)


def _unfiltered(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    if kind == 0 or (not any(line) and kind == 2):
        return line if kind == 0 else above
    row = bytearray(line)
    for i, value in enumerate(row):
        left = row[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        guess = (0, left, above[i], (left + above[i]) // 2, 0)[kind]
        if kind == 4:
            distances = (abs(above[i] - corner), abs(left - corner), abs(left + above[i] - 2 * corner))
            guess = (left, above[i], corner)[distances.index(min(distances))]
        row[i] = (value + guess) & 255
    return bytes(row)

"""Cells of a grid of assumptions: none changed, each changed alone, and every pair changed in some cell."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Axes: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Differences from the expected world, by axis and value."""
Cell: TypeAlias = Mapping[str, str]
"""The changed value of each axis."""
_Pair: TypeAlias = tuple[tuple[str, str], tuple[str, str]]


def cells(axes: Axes, together: int) -> list[Cell]:
    """Return the cells of a grid, each with at most ``together`` changes.

    After the single changes a greedy search adds cells until every pair of different axes is in one.
    """
    values = [(axis, value) for axis, of_axis in axes.items() for value in of_axis]
    pairs = [pair for pair in itertools.combinations(values, 2) if pair[0][0] != pair[1][0]]
    result: list[Cell] = [{}, *({axis: value} for axis, value in values)]
    missing = dict.fromkeys(pairs)
    while missing:
        cell = dict(next(iter(missing)))
        while len(cell) < together:
            more = [(axis, value) for axis, value in values if axis not in cell]
            cell |= [max(more, key=lambda item: len(_new(missing, dict([*cell.items(), item]))))]
        for pair in _new(missing, cell):
            del missing[pair]
        result.append(cell)
    return result


def changed(axes: Axes, cell: Cell) -> dict[str, Any]:
    """Return the differences of a cell."""
    return {key: value for axis, chosen in cell.items() for key, value in axes[axis][chosen].items()}


def title(cell: Cell) -> str:
    """Return the name of a cell."""
    return ", ".join(f"{axis} {value}" for axis, value in cell.items()) or "as expected"


def _new(missing: Iterable[_Pair], cell: Cell) -> list[_Pair]:
    return [pair for pair in missing if all(cell.get(axis) == value for axis, value in pair)]

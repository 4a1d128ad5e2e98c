"""Plot each policy's regret in every world: one row per policy, one dot per world."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from research.simulation.plots.svg import OTHER_COLOUR, OURS, Picture

_WIDTH, _ROW, _TOP, _BOTTOM = 760, 34, 40, 44
_MARGIN_LEFT, _MARGIN_RIGHT = 150, 24
_TITLE: Final = "Cost above the cheapest way to the same availability"
_MIN_REGRET: Final = 0.001
"""The regret at which zero and smaller values are drawn: the axis is logarithmic."""


def svg(by_policy: Mapping[str, Sequence[tuple[str, float | None]]]) -> str:
    """Return an SVG picture of ``(world, regret)`` by policy, ours first.

    A regret is a fraction, ``None`` if the policy never reaches the availability.
    """
    max_regret = max(
        (regret for marks in by_policy.values() for _, regret in marks if regret is not None),
        default=_MIN_REGRET,
    )
    decades = max(1, math.ceil(math.log10(max(max_regret, _MIN_REGRET) / _MIN_REGRET)))
    height = _TOP + _ROW * len(by_policy) + _BOTTOM

    def x(regret: float | None) -> float:
        if regret is None:
            return _WIDTH - _MARGIN_RIGHT / 2
        return _MARGIN_LEFT + math.log10(max(regret, _MIN_REGRET) / _MIN_REGRET) / decades * (
            _WIDTH - _MARGIN_LEFT - _MARGIN_RIGHT
        )

    picture = Picture(_WIDTH, height)
    picture.text(_MARGIN_LEFT, 20, _TITLE, font_size=14)
    for power in range(decades + 1):
        regret = _MIN_REGRET * 10**power
        picture.path(f"M{x(regret):.1f} {_TOP - 8}V{height - _BOTTOM}")
        label = f"≤ {100 * regret:g} %" if power == 0 else f"{100 * regret:g} %"
        picture.text(x(regret), height - _BOTTOM + 16, label, "middle")
    for number, (policy, marks) in enumerate(by_policy.items()):
        y, colour = _TOP + _ROW * (number + 0.5), OTHER_COLOUR if number else OURS
        picture.text(_MARGIN_LEFT - 12, y + 4, policy, "end", fill=colour)
        for index, (world, regret) in enumerate(marks):
            label = "does not get there" if regret is None else f"{100 * regret:.2f} %"
            # Neighbours are offset slightly to keep equal values visible.
            picture.dot(x(regret), y + (index % 7 - 3) * 3, colour, f"{world}: {label}", radius=3)
    end = "a dot is a world; at the right edge: a policy does not get there"
    picture.text(_MARGIN_LEFT, height - 8, end)
    return str(picture)

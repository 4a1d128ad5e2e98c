"""Fit the spreads of a forecast's range to the traces in ``GPU_SPOT_TRACES``; compare with the shipped ones.

GPU_SPOT_TRACES=… python -m research.fit.forecast

``gpu_spot/forecast/ranges.py`` contains only the printed numbers.
"""

from __future__ import annotations

from dataclasses import astuple

from gpu_spot.forecast.ranges import ACROSS, FITTED
from research.market.forecast import fit, measured, unknown_markets
from research.parts import needs
from research.parts.scenarios import real


def main() -> None:
    """Fit and print; return 1 if the shipped spreads differ."""
    root = needs.traces_to_fit_on()
    markets = real(root)
    fits = {"FITTED": (fit(measured(markets)[0]), FITTED), "ACROSS": (unknown_markets(markets)[0], ACROSS)}
    for name, (spreads, shipped) in fits.items():
        print(f"fitted {spreads}\nshipped {shipped}")
        if any(abs(a - b) > 0.01 * b for a, b in zip(astuple(spreads), astuple(shipped), strict=True)):
            raise SystemExit(f"{name} in gpu_spot/forecast/ranges.py differs from the fit to the traces")


if __name__ == "__main__":
    main()

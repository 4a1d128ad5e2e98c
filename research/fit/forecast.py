"""Fit the spreads of a forecast's range to the traces in ``GPU_SPOT_TRACES``; compare with the shipped ones.

GPU_SPOT_TRACES=… python -m research.fit.forecast

``gpu_spot/forecast/ranges.py`` contains only the printed numbers.
"""

from __future__ import annotations

from dataclasses import astuple

from gpu_spot.forecast.ranges import FITTED
from research.market.forecast import fit, measured
from research.parts import needs
from research.parts.scenarios import real


def main() -> None:
    """Fit and print; return 1 if the shipped spreads differ."""
    root = needs.traces_to_fit_on()
    spreads = fit(measured(real(root))[0])
    print(f"fitted {spreads}\nshipped {FITTED}")
    if any(abs(a - b) > 0.01 * b for a, b in zip(astuple(spreads), astuple(FITTED), strict=True)):
        raise SystemExit("FITTED in gpu_spot/forecast/ranges.py differs from the fit to the traces")


if __name__ == "__main__":
    main()

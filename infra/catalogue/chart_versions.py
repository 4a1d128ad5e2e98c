"""Versions of the Helm charts of a created cluster, oldest first.

Sources of what they support: Karpenter: ``MaxK8sVersion`` in karpenter-provider-aws,
``pkg/providers/version/version.go``, of each version; KEDA: keda.sh, "Cluster", tested versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ChartVersion:
    """A pinned version: its date, and the newest Kubernetes that its project supports; empty: not known."""

    version: str
    released: str = ""
    kubernetes: str = ""


KARPENTER: Final = (
    ChartVersion("1.14.0", "2026-07-10", "1.36"),
    ChartVersion("1.15.2", "2026-11-12", "1.37"),
)
KUEUE: Final = (ChartVersion("0.19.1", "2026-08-12"),)
KEDA: Final = (ChartVersion("2.21.1", "2026-09-23", "1.36"),)
TRAINER: Final = (ChartVersion("2.4.0"),)
DEVICES: Final = (ChartVersion("0.19.2"),)
GPU_METRICS: Final = (ChartVersion("4.8.1"),)
ALL: Final = (*KARPENTER, *KUEUE, *KEDA, *TRAINER, *DEVICES, *GPU_METRICS)


def for_kubernetes(versions: Sequence[ChartVersion], kubernetes: str) -> ChartVersion:
    """Return the oldest version that supports a Kubernetes version, or else the newest."""
    return next((version for version in versions if supports(version, kubernetes)), versions[-1])


def supports(version: ChartVersion, kubernetes: str) -> bool:
    """Return whether a chart's version supports a Kubernetes version, as far as that is known."""
    return not version.kubernetes or _minor(version.kubernetes) >= _minor(kubernetes)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])

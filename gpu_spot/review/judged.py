"""Environments with what their previews mean, before it is worded: as a comment, or for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu_spot.review.preview import Preview
from gpu_spot.review.workers import Meaning, judge


@dataclass(frozen=True)
class Judged:
    """One environment; ``forecast`` is the Markdown of ``gpu-spot forecast``, empty where there is none."""

    preview: Preview
    meaning: Meaning
    forecast: str

    @property
    def cost(self) -> str:
        """The forecast's first sentence: its first line that is neither heading, table nor fold."""
        lines = (line.strip() for line in self.forecast.splitlines())
        return next((line for line in lines if line and line[0] not in "#|<-`~>"), "")

    @property
    def is_changed(self) -> bool:
        """Whether something changes, or nobody knows because the preview failed."""
        return bool(self.preview.changes or self.preview.errors)


def judged(previews: Sequence[Preview], forecasts: Mapping[str, str]) -> list[Judged]:
    """Return an environment for each preview, the gravest first; ``forecasts`` are by environment."""
    found = [Judged(one, judge(one), forecasts.get(one.environment, "")) for one in previews]
    return sorted(
        found, key=lambda one: (not one.preview.errors, -one.meaning.worst, one.preview.environment)
    )


def to_json(found: Sequence[Judged], run: str = "", commit: str = "") -> dict[str, Any]:
    """Return what a comment says of environments as JSON values, uncut, without the diff."""
    return {
        "commit": commit or None,
        "address": run or None,
        "is_changed": any(one.is_changed for one in found),
        "environments": [_environment(one) for one in found],
    }


def _environment(one: Judged) -> dict[str, Any]:
    preview, meaning = one.preview, one.meaning
    effects = [
        {
            "severity": effect.severity.name.lower(),
            "group": effect.group or None,
            "words": effect.words,
            "details": list(effect.details),
        }
        for effect in meaning.effects
    ]
    return {
        "environment": preview.environment,
        "severity": meaning.worst.name.lower(),
        "resources": preview.counts(),
        "effects": effects,
        "untouched": list(meaning.untouched),
        "policies": [asdict(one) for one in preview.complaints] if preview.is_judged else None,
        "errors": list(preview.errors),
        "warnings": list(preview.warnings),
        "cost": one.cost or None,
    }

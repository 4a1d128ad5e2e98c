"""Reviewed environments: previews with their effects, before rendering as comment or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpu_spot.review.effects.workers import Meaning, assess_preview
from gpu_spot.review.preview import Preview


@dataclass(frozen=True)
class ReviewedEnvironment:
    """One environment; ``forecast`` is the Markdown of ``gpu-spot forecast``, empty if there is none.

    ``rules`` says how many policies it has at which level, empty if that is not known.
    """

    preview: Preview
    meaning: Meaning
    forecast: str
    rules: str = ""

    @property
    def cost(self) -> str:
        """The first sentence of the forecast: its first line that is not a heading, table or fold."""
        lines = (line.strip() for line in self.forecast.splitlines())
        return next((line for line in lines if line and line[0] not in "#|<-`~>"), "")

    @property
    def is_changed(self) -> bool:
        """Whether something changes, or may change because the preview failed or is incomplete."""
        return bool(self.preview.changes) or not self.preview.is_whole


def review_environments(
    previews: Sequence[Preview], forecasts: Mapping[str, str], rules: Mapping[str, str] | None = None
) -> list[ReviewedEnvironment]:
    """Return a reviewed environment for each preview, most severe first.

    ``forecasts`` and ``rules`` are by environment.
    """
    environments = [
        ReviewedEnvironment(
            preview,
            assess_preview(preview),
            forecasts.get(preview.environment, ""),
            (rules or {}).get(preview.environment, ""),
        )
        for preview in previews
    ]
    return sorted(
        environments,
        key=lambda preview: (not preview.preview.errors, -preview.meaning.worst, preview.preview.environment),
    )


def to_json(
    environments: Sequence[ReviewedEnvironment], verdict: Mapping[str, Any], run: str = "", commit: str = ""
) -> dict[str, Any]:
    """Return the content of a comment as JSON values, without truncation and without the diff."""
    return {
        "verdict": dict(verdict),
        "commit": commit or None,
        "address": run or None,
        "is_changed": any(environment.is_changed for environment in environments),
        "environments": [_environment_json(environment) for environment in environments],
    }


def _environment_json(environment: ReviewedEnvironment) -> dict[str, Any]:
    preview, meaning = environment.preview, environment.meaning
    effects = [
        {
            "severity": effect.severity.name.lower(),
            "group": effect.group or None,
            "words": effect.words,
            "details": list(effect.details),
            "axis": effect.axis,
            "direction": effect.direction or None,
        }
        for effect in meaning.effects
    ]
    return {
        "environment": preview.environment,
        "severity": meaning.worst.name.lower(),
        "resources": preview.counts(),
        "effects": effects,
        "notes": list(meaning.notes),
        "untouched": list(meaning.untouched),
        "policies": [asdict(violation) for violation in preview.violations]
        if preview.has_policy_results
        else None,
        "errors": list(preview.errors),
        "warnings": list(preview.warnings),
        "cost": environment.cost or None,
    }

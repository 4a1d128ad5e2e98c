"""The results of all runs on AWS as one JSON file, of which the page in ``docs/`` is made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.trial import Outcome
from pulumi_declared.errors import UserError

FILE: Final = Path("docs", "aws-check.json")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The outcome of a test on AWS; ``statement`` is the one that was tested, ``day`` a date."""

    statement: str
    verdict: str
    observation: str
    region: str
    day: str


StoredResults: TypeAlias = Mapping[str, StoredResult]
"""StoredResults by name of the assumption."""


def read(file: Path) -> dict[str, StoredResult]:
    """Return the stored results, none if there is no file. Raises ``UserError`` for an invalid file."""
    if not file.is_file():
        return {}
    try:
        return {name: StoredResult(**entry) for name, entry in json.loads(file.read_text("utf-8")).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{file} is not a file of results: {error}") from None


def dumps(results: StoredResults) -> str:
    """Return the text of a file."""
    entries = {name: asdict(result) for name, result in sorted(results.items())}
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def merged(
    results: StoredResults, outcomes: Iterable[Outcome], region: str, day: str
) -> dict[str, StoredResult]:
    """Return the results with those of a run; a test that did not run replaces no result."""
    after = dict(results)
    for outcome in outcomes:
        assumption = outcome.assumption
        if outcome.verdict != "not tried" or result_of(assumption, results) is None:
            result = StoredResult(assumption.statement, outcome.verdict, outcome.observation, region, day)
            after[assumption.name] = result
    return after


def result_of(assumption: Assumption, results: StoredResults) -> StoredResult | None:
    """Return the result of an assumption; None if this statement was not tested."""
    result = results.get(assumption.name)
    return result if result is not None and result.statement == assumption.statement else None

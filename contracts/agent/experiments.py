"""Experiments of a ``matrix``: one for each combination of its values, with a name derived from the values.

Stack and node agent derive the same names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_DIGITS: Final = 6
MAX_NAME_LENGTH: Final = 24 - len("-") - _DIGITS
"""Maximum length of a job's name with experiments, whose names start with it."""


def combinations(matrix: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield the environment of each experiment, in an order independent of that of the mapping."""
    # Serialization may reorder a mapping.
    names = sorted(matrix)
    for values in itertools.product(*(matrix[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def name_of(job: str, environment: Mapping[str, str]) -> str:
    """Return ``<job>-<truncated values>-<digest of the values>``: at most 24 characters."""
    values = "-".join(
        re.sub(r"[^a-z0-9]+", "-", value.lower().replace(".", "p")) for value in environment.values()
    )
    readable = re.sub(r"-+", "-", values)[: max(0, MAX_NAME_LENGTH - len(job) - 1)].strip("-")
    return "-".join(part for part in (job, readable, _digest(environment)) if part)


def by_name(job: str, matrix: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the environment of each experiment by its name."""
    return {name_of(job, environment): environment for environment in combinations(matrix)}


def run_of(revision: str, matrix: Mapping[str, Sequence[str]]) -> str:
    """Return the id of a run of all experiments of a group; another matrix is another run."""
    return f"{revision}/{_digest({name: sorted(values) for name, values in matrix.items()})}"


def _digest(values: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:_DIGITS]

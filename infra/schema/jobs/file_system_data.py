"""Detection of jobs that seem to read their training data from the shared file system, which is slow.

Checkpoints are a few large files that are written now and then. Training data is many small files that are
read all the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from contracts.agent.names import DATA_DIR
from infra.schema.jobs.training import Training

SLOW: Final = (
    "each read is a round trip of about 1 ms, so many small files are slow, and an instance gets at most "
    "1,500 MiB/s (EFS user guide, performance specifications). Use dataset, prepare or datasets to have the "
    "data on a volume"
)

_WORDS: Final = r"(^|[^a-z])(data|datasets?|inputs?|train|val|valid|corpus)([^a-z]|$)"
_DATA: Final = re.compile(_WORDS, re.IGNORECASE)


def data_on_file_system(job: Training) -> Iterator[tuple[str, str]]:
    """Yield the key below the job's entry, and the text, of each sign of training data on EFS."""
    if job.access_point is None:
        return
    prefixes = (f"{DATA_DIR}/checkpoints", "$GPU_SPOT_CHECKPOINTS", "${GPU_SPOT_CHECKPOINTS}")
    has_signs = False
    previous = ""
    for argument in job.command:
        option, value = _split(argument, previous)
        if value.startswith(prefixes) and _DATA.search(option):
            has_signs = True
            yield "command", f"{argument!r} seems to be training data on EFS"
        previous = argument
    for name, value in job.environment.items():
        if value.startswith(prefixes) and _DATA.search(name):
            has_signs = True
            yield f"environment.{name}", f"{value!r} seems to be training data on EFS"
    if not has_signs and not (job.dataset or job.prepare or job.datasets):
        yield (
            "checkpoints",
            "the job has no dataset, prepare or datasets; if it reads its data from the EFS of its "
            "checkpoints",
        )


def _split(argument: str, previous: str) -> tuple[str, str]:
    """Return an option and its value, which are one argument or two."""
    option, equals, value = argument.partition("=")
    return (option, value) if equals else (previous, argument)

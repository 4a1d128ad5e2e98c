"""Where a job seems to read its training data from the shared file system, which is slow.

Checkpoints are a few large files, written now and then; data are many small ones, read all the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from contracts.agent.names import DATA_DIR
from infra.schema.jobs.training import ON_THE_VOLUME, Training

SLOW: Final = (
    "each read is a round trip of about 1 ms, so many small files are slow, and one instance gets at most "
    "1,500 MiB/s (EFS user guide, performance specifications), while the GPU is paid. Name what is read in "
    "dataset, prepare or datasets: then it lies on a volume"
)

_WORDS: Final = r"(^|[^a-z])(data|datasets?|inputs?|train|val|valid|corpus)([^a-z]|$)"
_DATA: Final = re.compile(_WORDS, re.IGNORECASE)


def data_on_file_system(job: Training) -> Iterator[tuple[str, str]]:
    """Yield the option that shows it, below the job's entry, and what it shows."""
    if job.checkpoints == ON_THE_VOLUME:
        return
    places = (f"{DATA_DIR}/checkpoints", "$GPU_SPOT_CHECKPOINTS", "${GPU_SPOT_CHECKPOINTS}")
    seen = False
    before = ""
    for argument in job.command:
        option, found = _split(argument, before)
        if found.startswith(places) and _DATA.search(option):
            seen = True
            yield "command", f"{argument!r} seems to be training data on EFS"
        before = argument
    for name, value in job.environment.items():
        if value.startswith(places) and _DATA.search(name):
            seen = True
            yield f"environment.{name}", f"{value!r} seems to be training data on EFS"
    if not seen and not (job.dataset or job.prepare or job.datasets):
        yield (
            "checkpoints",
            "nothing here brings the job its data; if it reads them beside its checkpoints on EFS",
        )


def _split(argument: str, before: str) -> tuple[str, str]:
    """Return an option and its value, written in one argument or in two."""
    option, equals, value = argument.partition("=")
    return (option, value) if equals else (before, argument)

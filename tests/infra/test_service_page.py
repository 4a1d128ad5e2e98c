"""docs/services.md: the entry that readers copy is one that a stack file may have."""

from __future__ import annotations

import re

import yaml

from tests.infra.declared import ROOT
from tests.infra.test_refusals import REMOVED, settings


def test_the_whole_entry_passes_the_schema() -> None:
    page = (ROOT / "docs" / "services.md").read_text("utf-8")
    block = re.search(r"## A whole entry\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    [service] = settings("dev", {**yaml.safe_load(block[1]), "gpu-spot:training": REMOVED}).services
    assert service.queue is not None
    assert service.scaling is not None
    assert service.workers_per_slot == 2

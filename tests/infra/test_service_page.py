"""docs/services.md, docs/http.md: the entries that readers copy are such as a stack file may have."""

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


def test_the_entry_with_an_address_passes_the_schema() -> None:
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    of = settings("dev", {**yaml.safe_load(block[1]), "gpu-spot:training": REMOVED})
    [service] = of.services
    assert service.http is not None
    assert service.http.domain == "chat.example.com"
    assert not [line for line in of.warnings() if "drainSeconds" in line]

"""The table of GPU metrics for dashboards of AWS's ``gpumon.py`` has the names that instances emit."""

from __future__ import annotations

import re
from typing import Final

from contracts.names import INSTANCE_NAMESPACE
from docs.site.stage import ROOT
from infra.components.monitoring.telemetry import configuration

# Source: https://aws.amazon.com/blogs/machine-learning/monitoring-gpu-utilization-with-amazon-cloudwatch/ and
# the Deep Learning AMI guide, "Monitor GPUs with CloudWatch". "Memory Usage" is NVML's utilization of the
# memory controller, not memory in use.
SAME_MEASURE: Final = {
    "GPU Usage": "utilization_gpu",
    "Memory Usage": "utilization_memory",
    "Power Usage (Watts)": "power_draw",
    "Temperature (C)": "temperature_gpu",
}


def test_the_table_has_the_names_of_both() -> None:
    page = (ROOT / "docs" / "services.md").read_text("utf-8")
    section = page.partition("\n## Dashboard and metrics\n")[2].partition("\n## ")[0]
    before, _, table = section.partition("| `gpumon` |")
    gpus = configuration("dev", "resnet", "log", is_nvidia=True)["metrics"]
    section_of_agent = gpus["metrics_collected"]["nvidia_gpu"]
    # Source: CloudWatch guide, "Collect NVIDIA GPU metrics": the agent puts ``nvidia_smi_`` before each name.
    emitted = {name: f"nvidia_smi_{name}" for name in section_of_agent["measurement"]}
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", table, re.M))
    assert rows == {old: emitted[measure] for old, measure in SAME_MEASURE.items()}
    words = before.rpartition("\n\n")[0].rpartition("\n\n")[2]
    [namespace, *_] = [text for text in re.findall(r"`([^`]+)`", words) if "/" in text]
    assert namespace == gpus["namespace"] == INSTANCE_NAMESPACE
    [dimensions] = gpus["aggregation_dimensions"]
    assert "by `{}` and `{}`".format(*dimensions) in words
    assert set(section_of_agent["drop_original_metrics"]) == set(emitted)  # no value of a single GPU

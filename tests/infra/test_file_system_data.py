"""Preview warnings for jobs that seem to read training data from EFS."""

from __future__ import annotations

from typing import Any

import pytest

from infra.settings import load_settings
from tests.infra import training
from tests.infra.test_refusals import STACKS

PREPARE = {"version": "1", "command": ["true"], "instanceType": "m7i.large"}
MOUNT = "/dltraining/checkpoints/resnet"


def warnings(**changes: Any) -> list[str]:
    job = training.job(**{"checkpoints": "checkpoints", "dataset": None, **changes})
    settings = load_settings({**STACKS["prod"], "gpu-spot:training": [job]})
    return [line for line in settings.warnings() if "round trip" in line]


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({}, "checkpoints: the job has no dataset, prepare or datasets"),
        ({"command": ["python3", "t.py", f"--data-dir={MOUNT}/imagenet"]}, "command: '--data-dir="),
        ({"command": ["python3", "t.py", "--train", f"{MOUNT}/imagenet"]}, "command: '/dltraining/"),
        (
            {"dataset": "s3://datasets/a/", "environment": {"DATA_ROOT": f"{MOUNT}/a"}},
            "environment.DATA_ROOT: '",
        ),
        (
            {"dataset": "s3://datasets/a/", "command": ["sh", "-c", "x", "--input=$GPU_SPOT_CHECKPOINTS/a"]},
            "command: '--input=",
        ),
    ],
)
def test_data_on_the_file_system_is_a_warning(changes: dict[str, Any], option: str) -> None:
    [line] = warnings(**changes)
    assert line.startswith(f"gpu-spot:training[0].{option}")
    assert "about 1 ms" in line
    assert "dataset, prepare or datasets" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "s3://datasets/a/"},
        {"prepare": PREPARE},
        {"datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/a"}]},
        {"checkpoints": "volume"},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", f"--resume={MOUNT}/step-1"]},
        {"dataset": "s3://datasets/a/", "command": ["python3", "t.py", "--metadata", "/tmp/x"]},
    ],
)
def test_data_on_volumes_is_no_warning(changes: dict[str, Any]) -> None:
    assert warnings(**changes) == []

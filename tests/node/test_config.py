from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node import configs
from userdata.agent.config import model as config
from userdata.agent.machine.errors import ConfigError


def test_a_training_configuration_is_read() -> None:
    parsed = configs.load(configs.training())
    assert parsed.training is not None
    assert parsed.training.command == ("python", "train.py")
    assert parsed.volume is not None
    assert parsed.volume.size_gib == 100
    assert parsed.hooks is not None
    assert parsed.hooks.terminate_seconds == 300.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drainSecond": 3}, "drainSecond: unknown key"),
        ({"drainSeconds": True}, "drainSeconds: True is not of type int"),
        ({"drainSeconds": 111}, "drainSeconds: 111; allowed: 0 to 110"),
        ({"side": "third"}, "side: 'third'; allowed: 'primary', 'fallback'"),
        ({"volume": {"sizeGib": "100"}}, "volume.sizeGib: '100' is not of type int"),
        ({"volume": {"dataset": "datasets"}}, "volume.dataset: 'datasets'; allowed: what matches ^s3://"),
        ({"volume": {"initializationRateMib": 50}}, "volume.initializationRateMib: 50; allowed: 100 to 300"),
        ({"service": {"command": ["x"]}}, "exactly one of training and service"),
        ({"hooks": {"autoScalingGroup": "a", "terminateSeconds": 5}}, "allowed: 30 to 7200"),
        (
            {"efs": [{"fileSystem": "fs-1", "accessPoint": "nope", "path": "/x"}]},
            "efs[0].accessPoint: 'nope'",
        ),
        ({"pollSeconds": 60}, "pollSeconds: 60; allowed: 1 to 5"),
    ],
)
def test_a_wrong_key_or_value_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        configs.load(configs.training(**change))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_branch_is_no_revision() -> None:
    body = configs.training()
    body["training"]["revision"] = "main"
    with pytest.raises(ConfigError, match=r"training\.revision: 'main'; allowed: what matches"):
        configs.load(body)


def test_an_image_needs_a_digest() -> None:
    with pytest.raises(ConfigError, match=r"service\.image: 'repo/worker:latest'; allowed: what matches"):
        configs.load(configs.service() | {"service": {"image": "repo/worker:latest"}})


def test_a_missing_key_and_a_missing_file_are_named(tmp_path: Path) -> None:
    body = configs.training()
    del body["group"]
    with pytest.raises(ConfigError, match="group: missing"):
        configs.load(body)
    with pytest.raises(ConfigError, match=r"no-such\.json: No such file"):
        config.load(tmp_path / "no-such.json")

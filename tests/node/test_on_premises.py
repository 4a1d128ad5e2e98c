"""The agent on a host that is no instance: the same workers, another part of the registry, no metadata."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.stored import ContractError
from tests.node import configs, registry_table
from tests.node.clocks import FakeClock
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.own_host import OnPremisesHost
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tasks.diagnosis import diagnose
from userdata.agent.tasks.node import Node

NOWHERE = "http://127.0.0.1:1"
"""Where a metadata service would be asked for."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-07")
    with registry_table.registry() as client:
        yield client


def rows(client: Any) -> list[Worker]:
    found = client.scan(TableName="registry", ConsistentRead=True)["Items"]
    return [registry_item.parse(item) for item in found]


def host(tmp_path: Path, clock: FakeClock, *command: str) -> Node:
    service = {"command": list(command), "gpus": 2}
    config = configs.service(group="ocr", service=service, hooks=None, onPremises=True, nvidia=False)
    made = Node(configs.load(config), tmp_path, NOWHERE)
    made.clock = clock
    return made


def test_on_premises_workers_register_separately_and_drain_on_sigterm(
    registry: Any, tmp_path: Path, clock: FakeClock
) -> None:
    made = host(tmp_path, clock, "sh", "-c", "env >$GPU_SPOT_TELL.env; exec sleep 60")
    seen: list[list[Worker]] = []
    stops: list[Callable[[], None]] = []
    made.on_sigterm = stops.append

    def on_sleep(seconds: float) -> None:
        time.sleep(0.002)  # the workers are real
        if clock.monotonic() % 10 < 0.5:
            seen.append(rows(registry))
        if len(seen) == 3 and (tmp_path / "ready" / "0" / "tell.json.env").exists():
            stops[0]()

    clock.on_sleep = on_sleep
    assert tasks.work(made) == 0
    assert [(one.partition, one.instance, one.slot, one.state) for one in seen[1]] == [
        ("ocr@on-premises#gpu-07", "gpu-07", slot, "ready") for slot in (0, 1)
    ]
    assert all(one.report and one.report.version.startswith("command:") for one in seen[1])
    assert rows(registry) == []
    config = (tmp_path / "ready" / "0" / "tell.json.env").read_text()
    assert "GPU_SPOT_SLOT=0" in config
    assert "AWS_" not in config  # our credentials are not the worker's


def test_the_metadata_service_is_never_asked(registry: Any, tmp_path: Path, clock: FakeClock) -> None:
    made = host(tmp_path, clock, "true")
    made.wait_outside_warm_pool()
    assert made.instance() == made.identity.instance == "gpu-07"
    assert not made.heartbeat_sender().is_in_warm_pool()


@pytest.mark.parametrize("name", ["localhost", "", "gpu/07", "a" * 64, "gpu 07", "-gpu"])
def test_a_host_without_a_name_of_its_own_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    with pytest.raises(ConfigError, match=r"host name .*, allowed: a unique name"):
        OnPremisesHost(FakeClock(), "us-west-2")


@pytest.mark.parametrize(
    "change",
    [
        {"datasets": [{"snapshot": "snap-0123456789abcdef0", "device": "/dev/sdk", "path": "/data/a"}]},
        {"hooks": {"launch": "prepared"}},
    ],
)
def test_what_only_an_instance_has_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="onPremises: allowed with service only"):
        configs.load(configs.service(**{"hooks": None, "onPremises": True, **change}))


def test_without_credentials_there_is_one_line_and_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AgentError, match="client of dynamodb: CredentialRetrievalError"):
        clients.dynamodb("us-west-2")


def test_doctor_asks_for_nothing_that_only_an_instance_has(
    registry: Any, tmp_path: Path, clock: FakeClock
) -> None:
    made = host(tmp_path, clock, "true")
    assert [one.check for one in diagnose(made.config, made.metadata, made.host, None)] == ["clock", "units"]

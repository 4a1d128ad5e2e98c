from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.utils import get_environ_proxies

from contracts.agent.config import EfsMount
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.node.metadata import MetadataServer
from tests.node.unit_files import UNITS
from tests.node.units import CommandHost, UnitHost
from userdata import render
from userdata.agent import cli
from userdata.agent.aws import clients, hooks
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.storage import efs
from userdata.agent.tasks.diagnosis import diagnose


@pytest.fixture
def restored_log() -> Iterator[None]:
    configured = log.LOGGER.handlers, log.LOGGER.propagate
    yield
    log.LOGGER.handlers, log.LOGGER.propagate = configured


@pytest.mark.usefixtures("restored_log")
def test_only_the_journal_gets_the_priority_of_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_own_stream", lambda identifier: None)  # no journal, or no library of systemd
    with (tmp_path / "stream").open("w+") as stream:
        status = os.fstat(stream.fileno())
        for variable in (f"{status.st_dev}:{status.st_ino}", "8:1", ""):
            monkeypatch.setenv("JOURNAL_STREAM", variable)
            log.configure(stream)
            log.error("a")
            log.warning("b")
            log.info("c")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert [line.partition("{")[0] for line in lines] == ["<3>", "<4>", "<6>", *[""] * 6]
    assert [json.loads(line[line.index("{") :])["event"] for line in lines] == list("abc" * 3)


@pytest.mark.usefixtures("restored_log")
def test_the_agent_has_its_own_connection_to_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a flood of its workers the agent's lines, and the agent with them, waited for seconds."""
    opened: list[tuple[bytes, int, int]] = []

    def connect(*arguments: Any) -> int:
        opened.append(arguments)
        return os.open(tmp_path / "own", os.O_CREAT | os.O_WRONLY)

    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(sd_journal_stream_fd=connect))
    with (tmp_path / "units").open("w+") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        log.configure(stream, identifier="gpu-spot-work")
        log.error("a")
        assert stream.tell() == 0
    assert opened == [(b"gpu-spot-work", 6, 1)]
    assert (tmp_path / "own").read_text().startswith('<3>{"time"')
    log.LOGGER.handlers[0].stream.close()  # type: ignore[attr-defined]
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(sd_journal_stream_fd=lambda *_: -2))
    assert log._own_stream("gpu-spot-work") is None


def test_every_unit_starts_a_subcommand_that_exists() -> None:
    started = set()
    for unit in sorted(UNITS.glob("*.service")):
        for line in unit.read_text().splitlines():
            if line.startswith("Exec") and "userdata.agent" in line:
                arguments = line.split("userdata.agent ")[1].split()
                assert cli.parser().parse_args(arguments).task
                started.add(arguments[0])
    assert started == {"watch", "prepare", "volume", "efs", "run", "work", "landlord", "proxy", "metrics"}


def test_every_unit_logs_under_its_own_name_which_is_that_of_its_subcommand() -> None:
    for unit in sorted(UNITS.glob("*.service")):
        assert f"\nSyslogIdentifier={unit.stem}\n" in unit.read_text()
        assert f" -m userdata.agent {unit.stem.removeprefix('gpu-spot-')}" in unit.read_text()


@pytest.mark.parametrize(
    ("listed", "result"),
    [
        ({}, "169.254.169.254"),
        ({"NO_PROXY": "a.example"}, "a.example,169.254.169.254"),
        ({"NO_PROXY": "a.example", "no_proxy": "b.example"}, "b.example,169.254.169.254"),
        ({"NO_PROXY": "*"}, "*"),
    ],
)
def test_credentials_come_through_no_proxy_and_calls_of_aws_through_the_one_that_is_set(
    listed: dict[str, str], result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    proxies = {"HTTP_PROXY": "http://proxy.example:3128", "HTTPS_PROXY": "http://proxy.example:3128"}
    for name, value in (listed | proxies).items():
        monkeypatch.setenv(name, value)
    credentials = "http://169.254.169.254/latest/meta-data/iam/security-credentials/"
    assert bool(get_environ_proxies(credentials)) is (result != "*")
    clients.bypass_proxy_for_metadata(os.environ)
    assert (os.environ["no_proxy"], os.environ["NO_PROXY"]) == (result, result)
    assert get_environ_proxies(credentials) == {}
    assert bool(get_environ_proxies("https://sts.us-west-2.amazonaws.com")) is (result != "*")


ROLE = "/latest/meta-data/iam/security-credentials/"


@pytest.fixture
def role(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> MetadataServer:
    """The metadata service of an instance, which alone has credentials here."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{metadata_server.url}/")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    for session in ("_session", "_s3_session"):
        monkeypatch.setattr(clients, session, cache(getattr(clients, session).__wrapped__))
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 21_600))
    given = {"Code": "Success", "AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t", "Expiration": until}
    metadata_server.documents[ROLE] = "instance"
    metadata_server.documents[f"{ROLE}instance"] = json.dumps(given)
    return metadata_server


def test_all_clients_share_the_credentials_of_the_role(role: MetadataServer) -> None:
    """While the metadata service was silent, a new client had none though others' were valid for hours."""
    clients.dynamodb("us-west-2")
    asked = len(role.requests)
    role.status = 503
    for make in (clients.dynamodb, clients.ssm, clients.s3, clients.s3):
        client = make("us-east-1")
        assert client._request_signer._credentials.get_frozen_credentials().access_key == "A"
    assert len(role.requests) == asked


def test_a_client_without_credentials_is_an_error_and_the_next_one_has_them(role: MetadataServer) -> None:
    """botocore makes a client that never has any, so heartbeats failed until the unit was restarted."""
    role.status = 503
    with pytest.raises(AgentError, match="client of ec2: no credentials; does the metadata service"):
        clients.ec2("us-west-2")
    tried = [path for _, path, _ in role.requests if path != "/latest/api/token"]
    assert len(tried) == 3  # a single missed answer is not a missing role
    role.status = None
    assert clients.ec2("us-west-2")


def test_every_subcommand_bypasses_the_proxy_for_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "")
    assert cli.main(["--config", str(tmp_path / "none.json"), "watch"]) == 78
    assert os.environ["NO_PROXY"].startswith("169.254.169.254")


def test_a_wrong_configuration_is_one_line_and_exit_78(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(configs.training(side="third")))
    assert cli.main(["--config", str(path), "watch"]) == 78
    [line] = capfd.readouterr().err.splitlines()
    assert json.loads(line)["error"] == f"{path}: side must be 'primary' or 'fallback', not 'third'"


def test_efs_is_mounted_once_with_tls_and_iam() -> None:
    class Host(CommandHost):
        def mounted(self, path: Path) -> str | None:
            return "127.0.0.1:/" if str(path) == "/b" else None

    mounts = [
        EfsMount("fs-1", "fsap-1", "/a/x"),
        EfsMount("fs-1", "fsap-2", "/b"),
        EfsMount("fs-1", "fsap-3", "/a"),
    ]
    host = Host()
    efs.mount_all(host, mounts)
    mounted = [argv for argv in host.ran if argv[0] == "mount"]
    assert [argv[-1] for argv in mounted] == ["/a", "/a/x"]
    assert mounted[0][4].startswith("tls,iam,accesspoint=fsap-3")


class Group:
    def __init__(self, code: str = "") -> None:
        self.code = code
        self.asked: list[dict[str, str]] = []

    def complete_lifecycle_action(self, **arguments: str) -> None:
        self.asked.append(arguments)
        if self.code:
            raise ClientError({"Error": {"Code": self.code, "Message": "m"}}, "CompleteLifecycleAction")


def test_a_hook_is_completed_or_not_active_or_refused() -> None:
    group: Any = Group()
    assert hooks.complete(group, "asg", "drain", "i-1", "CONTINUE") is True
    assert group.asked == [
        {
            "AutoScalingGroupName": "asg",
            "LifecycleHookName": "drain",
            "InstanceId": "i-1",
            "LifecycleActionResult": "CONTINUE",
        }
    ]
    inactive: Any = Group("ValidationError")
    assert hooks.complete(inactive, "asg", "drain", "i-1", "CONTINUE") is False
    refused: Any = Group("AccessDenied")
    with pytest.raises(AgentError, match="lifecycle hook drain: AccessDenied"):
        hooks.complete(refused, "asg", "drain", "i-1", "CONTINUE")


class HealthyHost(UnitHost):
    def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        return "yes\n"

    def mounted(self, path: Path) -> str | None:
        return "/dev/nvme1n1"


def test_doctor_names_what_is_wrong_and_goes_on(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata_server.identify("i-1", "us-west-2a", "g5.xlarge")
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    config = configs.load(configs.training())
    host = HealthyHost()
    host.pids = {"gpu-spot-watch.service": 1, "gpu-spot-metrics.service": 2}
    metadata = Metadata(clock, metadata_server.url)
    found = list(diagnose(config, metadata, host, Gpus(FakeNvml([FakeGpu("GPU-1")]), 2), tmp_path))
    levels = {f.check: f.level for f in found}
    assert levels["metadata"] == levels["clock"] == "ok"
    assert levels["gpus"] == levels["units"] == levels["cloudwatch agent"] == "failure"
    texts = {f.check: f.text for f in found}
    assert texts["gpus"].startswith("1 of 2 lost")
    assert "gpu-spot-run.service not running" in texts["units"]
    assert "containers" not in texts
    metadata_server.status = 503
    assert next(iter(diagnose(config, metadata, host, Gpus(FakeNvml([]), 1), tmp_path))).level == "failure"


@pytest.mark.parametrize(("seen", "level"), [("GPU 0: a\n", "ok"), ("", "failure")])
def test_doctor_starts_a_container_of_the_work_with_its_gpus(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer, seen: str, level: str
) -> None:
    class Host(HealthyHost):
        def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
            return seen if argv[0] == "docker" else "yes\n"

    image = f"example.com/worker@sha256:{'0' * 64}"
    body = configs.training()
    body["training"]["image"] = image
    for config in (configs.load(body), configs.load(configs.service(service={"image": image}))):
        metadata = Metadata(clock, metadata_server.url)
        found = diagnose(config, metadata, Host(), Gpus(FakeNvml([FakeGpu("GPU-1")]), 1), tmp_path)
        assert {f.check: f.level for f in found}["containers"] == level


@pytest.mark.parametrize(
    "work", [{"sharedHost": {"bucket": "lists", "jobTable": "jobs"}}, {"proxy": {"workers": {"port": 8000}}}]
)
def test_doctor_checks_a_machine_of_each_kind_for_its_own_units(
    tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer, work: dict[str, Any]
) -> None:
    metadata_server.identify("i-1", "us-west-2a", "g5.xlarge")
    config = configs.load({**configs.service(), "service": None, **work, "nvidia": "sharedHost" in work})
    host, metadata = HealthyHost(), Metadata(clock, metadata_server.url)
    host.pids = dict.fromkeys(render.units(config), 1)
    gpus = Gpus(FakeNvml([FakeGpu("GPU-1")]), 1) if config.nvidia else None
    found = {f.check: f.level for f in diagnose(config, metadata, host, gpus, tmp_path)}
    assert found == {"cloudwatch agent": "failure"} | dict.fromkeys(found.keys() - {"cloudwatch agent"}, "ok")
    assert {"metadata", "clock", "units"} <= found.keys()

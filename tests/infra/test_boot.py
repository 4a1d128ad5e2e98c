"""Boot data: small, valid for cloud-init, and a worker that reports as the contract says."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from moto import mock_aws

from userdata import render as rendering
from userdata import worker as working
from userdata.render import LIMIT_BYTES, BootSettings, render

SETTINGS = BootSettings("us-west-2", "inference", "gpu-spot-dev-registry-1a2b3c4", 2, "worker-started")


def test_boot_data_is_far_below_the_limit() -> None:
    assert len(render(SETTINGS).encode()) < LIMIT_BYTES / 2


def test_the_worker_arrives_as_it_is_in_the_source_tree() -> None:
    files = {file["path"]: file["content"] for file in yaml.safe_load(render(SETTINGS))["write_files"]}
    assert files["/opt/gpu-spot/worker.py"] == Path(working.__file__).read_text("utf-8")
    assert files["/etc/gpu-spot/worker.env"].splitlines() == [
        "AWS_DEFAULT_REGION=us-west-2",
        "GPU_SPOT_GROUP=inference",
        "GPU_SPOT_REGISTRY_TABLE=gpu-spot-dev-registry-1a2b3c4",
        "GPU_SPOT_SLOTS=2",
        "GPU_SPOT_LAUNCH_HOOK=worker-started",
    ]


def test_cloud_init_accepts_it(tmp_path: Path, require_program: Callable[..., str]) -> None:
    program = require_program("cloud-init")
    path = tmp_path / "user-data"
    path.write_text(render(SETTINGS), "utf-8")
    done = subprocess.run([program, "schema", "-c", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_boot_starts_the_worker_and_does_nothing_else() -> None:
    # Cloud-init ignores keys that it does not know, so its own check would let a misspelt one pass.
    config = yaml.safe_load(render(SETTINGS))
    assert set(config) == {"write_files", "runcmd"}
    assert config["runcmd"][-1] == ["systemctl", "enable", "--now", "gpu-spot-worker.service"]


def test_systemd_accepts_the_unit(tmp_path: Path, require_program: Callable[..., str]) -> None:
    program = require_program("systemd-analyze", package="systemd")
    files = {file["path"]: file["content"] for file in yaml.safe_load(render(SETTINGS))["write_files"]}
    unit = tmp_path / "gpu-spot-worker.service"
    unit.write_text(
        files["/etc/systemd/system/gpu-spot-worker.service"].replace("/usr/bin/python3", "/bin/true")
    )
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Unknown" not in done.stderr


@pytest.mark.parametrize("value", ["a b", "x\ny: 1", "$(reboot)", "ä"])
def test_a_value_that_yaml_or_systemd_could_misread_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"boot setting 'group' is .* allowed: letters, digits"):
        render(BootSettings("us-west-2", value, "table", 1))


def test_an_undefined_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boot.yaml.tmpl").write_text("${region} ${regoin}", "utf-8")
    (tmp_path / "worker.py").write_text("", "utf-8")
    monkeypatch.setattr(rendering, "_HERE", tmp_path)
    with pytest.raises(KeyError, match="regoin"):
        render(SETTINGS)


def test_boot_data_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "boot.yaml.tmpl").write_text("${worker}", "utf-8")
    (tmp_path / "worker.py").write_text("#" * 17_000, "utf-8")
    monkeypatch.setattr(rendering, "_HERE", tmp_path)
    with pytest.raises(ValueError, match="boot data is 17006 bytes, allowed: at most 16384"):
        render(SETTINGS)


class Imds(ThreadingHTTPServer):
    """A metadata service that insists on version 2."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ImdsHandler)
        self.values: dict[str, str] = {
            "instance-id": "i-0abc",
            "autoscaling/target-lifecycle-state": "InService",
            "tags/instance/aws:autoscaling:groupName": "gpu-spot-dev-inference-fallback-1",
        }

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _ImdsHandler(BaseHTTPRequestHandler):
    server: Imds

    def do_PUT(self) -> None:
        self._answer(200, "token" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else "")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            return self._answer(401, "")
        value = self.server.values.get(self.path.removeprefix("/latest/meta-data/"))
        return self._answer(200 if value is not None else 404, value or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


class AutoScaling:
    """Lifecycle hooks, which moto cannot complete. ``waiting``: the hook waits for an answer now."""

    class exceptions:  # noqa: N801
        ClientError = ClientError

    def __init__(self) -> None:
        self.waiting = True
        self.completed: list[dict[str, str]] = []
        self.asked = 0

    def complete_lifecycle_action(self, **call: str) -> None:
        self.asked += 1
        if not self.waiting:
            text = "No active Lifecycle Action found with instance ID i-0abc"
            raise ClientError(
                {"Error": {"Code": "ValidationError", "Message": text}}, "CompleteLifecycleAction"
            )
        self.completed.append(call)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def imds() -> Iterator[Imds]:
    server = Imds()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    with mock_aws():
        client = boto3.client("dynamodb", "us-west-2")
        client.create_table(
            TableName=SETTINGS.registry_table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": "group", "KeyType": "HASH"},
                {"AttributeName": "worker", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": "S"} for key in ("group", "worker")
            ],
        )
        yield client


@pytest.fixture
def autoscaling() -> AutoScaling:
    return AutoScaling()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(imds: Imds, dynamodb: Any, autoscaling: AutoScaling, clock: Clock) -> working.Worker:
    environment = {
        "GPU_SPOT_GROUP": SETTINGS.group,
        "GPU_SPOT_REGISTRY_TABLE": SETTINGS.registry_table,
        "GPU_SPOT_SLOTS": str(SETTINGS.slots),
        "GPU_SPOT_LAUNCH_HOOK": SETTINGS.launch_hook,
    }
    return working.Worker(working.Metadata(imds.host), dynamodb, autoscaling, environment, clock)


def rows(dynamodb: Any) -> list[dict[str, str]]:
    items = dynamodb.scan(TableName=SETTINGS.registry_table)["Items"]
    return [{key: next(iter(value.values())) for key, value in item.items()} for item in items]


def test_each_slot_has_a_row_as_the_contract_says(worker: working.Worker, dynamodb: Any) -> None:
    worker.tick()
    assert sorted(rows(dynamodb), key=lambda row: row["worker"]) == [
        {
            "group": "inference",
            "worker": f"i-0abc/{slot}",
            "instance": "i-0abc",
            "since": "1000000.000",
            "heartbeat": "1000000.000",
            "state": "ready",
            "expires": "1003600",
        }
        for slot in (0, 1)
    ]


def test_later_heartbeats_keep_the_first_time(worker: working.Worker, dynamodb: Any, clock: Clock) -> None:
    worker.tick()
    clock.now += working.HEARTBEAT_SECONDS
    worker.tick()
    assert {(float(row["since"]), float(row["heartbeat"])) for row in rows(dynamodb)} == {
        (1_000_000.0, clock.now)
    }


def test_a_heartbeat_that_is_not_due_is_not_sent(worker: working.Worker, dynamodb: Any, clock: Clock) -> None:
    worker.tick()
    clock.now += working.POLL_SECONDS
    worker.tick()
    assert {row["heartbeat"] for row in rows(dynamodb)} == {"1000000.000"}


def test_a_warm_instance_is_quiet_but_ends_its_hook(
    worker: working.Worker, imds: Imds, dynamodb: Any, autoscaling: AutoScaling, clock: Clock
) -> None:
    imds.values["autoscaling/target-lifecycle-state"] = "Warmed:Stopped"
    worker.tick()
    assert rows(dynamodb) == []
    assert autoscaling.completed == [
        {
            "AutoScalingGroupName": "gpu-spot-dev-inference-fallback-1",
            "LifecycleHookName": "worker-started",
            "InstanceId": "i-0abc",
            "LifecycleActionResult": "CONTINUE",
        }
    ]
    imds.values["autoscaling/target-lifecycle-state"] = "InService"
    clock.now += 3600
    worker.tick()
    assert len(autoscaling.completed) == 2
    assert {float(row["since"]) for row in rows(dynamodb)} == {clock.now}


def test_a_hook_that_does_not_wait_yet_is_asked_again_and_then_given_up(
    worker: working.Worker, dynamodb: Any, autoscaling: AutoScaling, clock: Clock
) -> None:
    autoscaling.waiting = False
    worker.tick()
    clock.now += working.POLL_SECONDS
    worker.tick()
    assert autoscaling.asked == 2
    assert len(rows(dynamodb)) == SETTINGS.slots
    clock.now += working.HOOK_SECONDS
    worker.tick()
    assert autoscaling.asked == 2


def test_without_a_hook_nothing_is_completed(
    imds: Imds, dynamodb: Any, autoscaling: AutoScaling, clock: Clock
) -> None:
    environment = {
        "GPU_SPOT_GROUP": "inference",
        "GPU_SPOT_REGISTRY_TABLE": SETTINGS.registry_table,
        "GPU_SPOT_SLOTS": "1",
        "GPU_SPOT_LAUNCH_HOOK": "",
    }
    working.Worker(working.Metadata(imds.host), dynamodb, autoscaling, environment, clock).tick()
    assert autoscaling.asked == 0
    assert len(rows(dynamodb)) == 1


def test_metadata_that_refuses_is_an_error_that_names_the_path(imds: Imds) -> None:
    class Broken(working.Metadata):
        def _fetch(self, method: str, path: str, headers: dict[str, str]) -> str | None:
            return "wrong" if method == "PUT" else super()._fetch(method, path, headers)

    with pytest.raises(OSError, match="instance metadata meta-data/instance-id: status 401"):
        Broken(imds.host).get("instance-id")

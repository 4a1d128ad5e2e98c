"""What a unit runs it can run in its own sandbox: the paths that it writes, and Docker's login."""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from contracts.agent import names
from tests.node import configs, unit_files
from tests.node.units import CommandHost
from tests.waiting import run_process
from userdata.agent.work import containers
from userdata.render import units

RUN = "/run/gpu-spot/notice.json"
STATE = "/var/lib/gpu-spot/home"
DATA = "/dltraining/checkpoints"
DEVICES = containers.CDI_SPECIFICATION
WRITES = {
    "efs": (DATA, "/models"),
    "landlord": (RUN, DATA, DEVICES),
    "metrics": (),
    "prepare": (RUN, DEVICES),
    "proxy": (RUN, "/etc/haproxy/haproxy.cfg", "/etc/systemd/system/haproxy.service.d/gpu-spot.conf"),
    "run": (RUN, STATE, DATA, DEVICES),
    "volume": (RUN, DATA),
    "watch": (RUN,),
    "work": (RUN, STATE, DEVICES),
}
USES_DOCKER = ("landlord", "prepare", "run", "work")
EFS = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints/resnet"}]
HOMES = ("/home", "/root", "/run/user")
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/worker@sha256:0"
SETTINGS_OF_PATHS = ("Protect", "Private", "ReadOnly", "Inaccessible", "TemporaryFile", "Root", "DynamicUser")


def closed(unit: str) -> tuple[str, ...]:
    """Return what a unit's sandbox does not let it write. Source: systemd.exec(5), "Sandboxing"."""
    found = unit_files.settings(unit)
    unknown = {key for key in found if key.startswith(SETTINGS_OF_PATHS)} - {"ProtectHome"}
    assert not unknown, f"{unit}: {unknown}: say here which paths they close"
    return HOMES if found["ProtectHome"] == ["yes"] else ()


def test_every_unit_says_what_it_writes() -> None:
    assert [f"gpu-spot-{name}" for name in sorted(WRITES)] == unit_files.NAMES


@pytest.mark.parametrize("name", WRITES)
def test_a_unit_may_write_what_it_writes(name: str) -> None:
    unit = f"gpu-spot-{name}"
    paths = list(WRITES[name])
    if name in USES_DOCKER:
        # Its client writes to $HOME without the variable, and systemd sets none: then of the passwd entry.
        folder = unit_files.environment(unit).get("DOCKER_CONFIG", f"{HOMES[1]}/.docker")
        assert unit_files.settings(unit)["RuntimeDirectoryMode"] == ["0700"]
        assert unit_files.settings(unit)["RuntimeDirectoryPreserve"] == ["yes"]  # units share it
        assert not Path(folder).is_relative_to("/run/gpu-spot")  # which containers see
        paths.append(f"{folder}/config.json")
    refused = [path for path in paths if any(Path(path).is_relative_to(root) for root in closed(unit))]
    assert refused == []


@pytest.fixture
def registry() -> Iterator[str]:
    """Yield the address of a registry that demands a login, as ECR does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            expected = "Basic " + base64.b64encode(b"AWS:secret").decode()
            is_allowed = self.headers.get("Authorization") == expected
            self.send_response(200 if is_allowed else 401)
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


SANDBOX = """
mount -t tmpfs none /run
for home in $HOMES; do ! [ -d "$home" ] || mount -t tmpfs -o ro,mode=0 none "$home"; done
[ -z "$RUNTIME_DIRECTORY" ] || mkdir -m 0700 "$RUNTIME_DIRECTORY"
exec "$@"
"""


@pytest.mark.parametrize("name", USES_DOCKER)
def test_docker_logs_in_where_a_unit_runs_it(
    name: str, registry: str, require_program: Callable[..., str]
) -> None:
    """Under ProtectHome=: "Error saving credentials: mkdir …/.docker: read-only file system"."""
    program, unshare = require_program("docker", package="docker.io"), require_program("unshare")
    enter = [unshare, "--mount", "--propagation", "private"]
    if subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("only root has mount namespaces here")
    host, unit = CommandHost(), f"gpu-spot-{name}"
    passwords = {"us-west-2": "secret"}  # the region of the image, whatever the stack's
    containers.log_in(host, IMAGE, passwords.__getitem__)
    [[_, *login, _]] = host.ran
    variables = unit_files.environment(unit) | {"HOMES": " ".join(closed(unit))}
    variables |= {"DOCKER_HOST": "unix:///run/none.sock"}  # without a daemon the client itself logs in
    command = [*enter, "sh", "-euc", SANDBOX, "sandbox", program, *login, registry]
    done = run_process(command, env=variables, input="secret")
    assert done.returncode == 0, done.stderr
    assert "Login Succeeded" in done.stdout


def test_no_unit_starts_one_that_the_configuration_does_not_need() -> None:
    """``run`` once started the volume's unit for a job on EFS, to say that there is no volume."""
    for unit in unit_files.NAMES:
        found = unit_files.settings(unit)
        assert not found["Requires"]
        assert "gpu-spot-" not in " ".join(found["Wants"])
    assert names.UNIT_VOLUME not in units(configs.load(configs.training(volume=None, efs=EFS)))
    # They are started one by one, and `After=` orders what is queued already.
    wanted = units(configs.load(configs.training(efs=EFS)))
    assert wanted.index(names.UNIT_VOLUME) < wanted.index(names.UNIT_EFS) < wanted.index(names.UNIT_RUN)

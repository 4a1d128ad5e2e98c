"""The policy pack as the engine runs it, in the previews of all sample stacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from tests.engine.workspace import ROOT, STACKS, Workspace
from tests.infra.test_key import KEY
from tests.policy.cases import FOREIGN, OWN


@pytest.fixture(scope="module")
def credentials() -> Iterator[dict[str, str]]:
    """The variables with credentials of the stand-ins' account."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own"}
    yield keys | {"AWS_ENDPOINT_URL_STS": f"http://{host}:{port}"}
    server.stop()


def policies(stack: str) -> tuple[str, ...]:
    config = ROOT / "policy" / "config" / f"{stack}.json"
    settings = ("--policy-pack-config", str(config)) if config.is_file() else ()
    return ("--policy-pack", "policy", *settings)


@pytest.mark.parametrize("stack", STACKS)
def test_the_pack_passes_a_sample_stack(
    stack: str, workspace: Workspace, credentials: dict[str, str]
) -> None:
    done = workspace.run("preview", *policies(stack), **credentials)
    assert "gpu-spot@v0.1.0" in done.output
    assert "[mandatory]" not in done.output


def test_the_pack_stops_a_key_of_another_account(workspace: Workspace, credentials: dict[str, str]) -> None:
    def change(config: dict[str, Any]) -> None:
        config["gpu-spot:kmsKeyArn"] = KEY.replace(OWN, FOREIGN)

    workspace.edit(change)
    done = workspace.run("preview", *policies("dev"), code=None, **credentials)
    assert done.code != 0
    assert f"names {FOREIGN}, which is not the stack's own ({OWN})" in done.output

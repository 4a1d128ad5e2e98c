"""What the engine has in a state: a preview writes nothing, an update what a stack's roles may write."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from infra.iam.preview_statements import PulumiState
from tests.engine.standins.world import Fault
from tests.engine.workspace import Workspace


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a local state; ``.attrs`` are Go Cloud's own and no objects of a bucket."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".attrs")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("compressed", [False, True])
def test_an_update_touches_the_keys_of_the_roles_and_a_preview_none(
    compressed: bool, workspace: Workspace
) -> None:
    folder = workspace.folder / "state"
    gzip = {"PULUMI_DIY_BACKEND_GZIP": "true"} if compressed else {}
    state = PulumiState("gpu-spot", workspace.stack, "acme-state", None)
    before = contents(folder)
    assert before
    workspace.preview(**gzip)
    assert contents(folder) == before

    workspace.up(**gzip)
    after = contents(folder)
    written = {key for key in after if before.get(key) != after[key]}
    assert len(written) >= 4  # the checkpoint, its history twice, its backup
    assert {re.sub(r"\d{10,}", "T", key) for key in written} >= {
        f".pulumi/stacks/gpu-spot/dev.json{'.gz' if compressed else ''}"
    }
    assert not [key for key in written if not any(fnmatchcase(key, pattern) for pattern in state.write)]
    assert [key for key in state.read if key in after]
    workspace.preview(**gzip)
    assert contents(folder) == after


def test_the_lock_of_an_update_is_a_key_of_its_roles(workspace: Workspace) -> None:
    folder = workspace.folder / "state"
    workspace.world.plant(Fault("create", match=":Vpc::", effect="hang"))
    with workspace.started("up", "--yes", "--skip-preview"):
        workspace.wait_until_it_hangs()
        [lock] = [key for key in contents(folder) if key.startswith(".pulumi/locks/")]
        patterns = PulumiState("gpu-spot", workspace.stack, "acme-state", None).write
        assert [pattern for pattern in patterns if fnmatchcase(lock, pattern)]
        workspace.preview()  # which a lock does not stop

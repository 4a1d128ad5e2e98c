"""The lease of a pod's checkpoint folder, at a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from spot_training.checkpointer import Checkpointer
from spot_training.errors import InUseError


def write(folder: Path) -> None:
    (folder / "state").write_text("weights", "utf-8")


def test_under_a_superseded_lease_no_checkpoint_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was frozen beyond its lease; it still has the lock, which its successor may lack on NFS."""
    folder, lease = tmp_path / "checkpoints", tmp_path / "7"
    monkeypatch.setenv("GPU_SPOT_LEASE", str(lease))
    one = Checkpointer(folder)
    with pytest.raises(InUseError, match="must be held, but is not there"):
        one.restore()
    lease.write_text("held by pod-a 5e1\n", "utf-8")
    one.restore()
    one.save(10, write)
    for text in ("superseded by 8, held by pod-b 7c2\n", "released\n", ""):
        lease.write_text(text, "utf-8")
        with pytest.raises(InUseError, match="can no longer save"):
            one.save(20, write)
    one.close()
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == ["step-000000000010"]

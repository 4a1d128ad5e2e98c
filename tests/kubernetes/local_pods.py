"""Pods of a rendered Job as processes of this machine: the containers' commands, with folders as volumes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from infra.kubernetes.context import Manifest
from tests.waiting import wait_until

WORK: Final = "work"
CHECKOUT: Final = "checkout"
TRAINS: Final = ".trains"
"""In the checkpoint folder: one line for each start of a trainer, the name of its pod."""
DOUBLES: Final = ".doubles"
"""In the checkpoint folder: one line for each trainer that was not alone."""
TRAINER: Final = """
cd "$GPU_SPOT_CHECKPOINTS"
exec 9>.alone
flock --nonblock 9 || echo "$POD" >>.doubles
echo "$POD" >>.trains
trap 'echo "$POD" >>.saved; exit 0' TERM
while [ ! -e "$CRASH" ]; do sleep 0.2 9>&-; done
exit 3
"""
"""A command that notes its start and whether another runs, saves at SIGTERM, and crashes on demand."""
DEAF_TRAINER: Final = TRAINER.replace("'echo \"$POD\" >>.saved; exit 0'", "''")


class LocalPod:
    """One pod of a Job's pod template, in ``folder``."""

    def __init__(
        self,
        folder: Path,
        checkpoints: Path,
        template: Manifest,
        variables: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self._checkpoints = folder, checkpoints
        self._spec: Manifest = template["spec"]
        self._metadata: Manifest = template["metadata"]
        self._variables = {"POD": folder.name, "CRASH": str(folder / "crash"), **(variables or {})}
        self._texts = dict(texts or {})
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        volumes = {volume["name"]: volume for volume in self._spec["volumes"]}
        for container in (*self._spec["initContainers"], *self._spec["containers"]):
            for mount in container["volumeMounts"]:
                self._texts[mount["mountPath"]] = str(self._volume(volumes[mount["name"]]))

    def _volume(self, volume: Manifest) -> Path:
        path: Path = self.folder / volume["name"]
        if path.exists():
            return path
        if "persistentVolumeClaim" in volume:
            path.symlink_to(self._checkpoints)
            return path
        path.mkdir()
        return path

    def add_file(self, volume: str, name: str, text: str) -> None:
        """Write a file of a volume, such as a ConfigMap's."""
        (self.folder / volume / name).write_text(text, "utf-8")

    def start(self, container: str = WORK) -> LocalPod:
        """Start a container; its output goes to a file of that name."""
        [spec] = [
            item
            for item in (*self._spec["initContainers"], *self._spec["containers"])
            if item["name"] == container
        ]
        environment = {item["name"]: self._local(self._value(item)) for item in spec["env"]}
        folder = self.folder / "local"
        if "workingDir" in spec:
            folder = Path(self._local(spec["workingDir"]))
            folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{container}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._local(part) for part in spec["command"]],
                cwd=folder,
                env={"PATH": os.environ["PATH"], **environment, **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def _value(self, variable: Manifest) -> str:
        """Return a variable's value; one of the downward API is empty where the pod has no such key."""
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        field = variable["valueFrom"]["fieldRef"]["fieldPath"]
        of_map = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", field)
        assert of_map is not None, field
        return str(self._metadata.get(of_map[1], {}).get(of_map[2], ""))

    def _local(self, text: str) -> str:
        there = "|".join(map(re.escape, sorted(self._texts, key=len, reverse=True)))
        # The kubelet expands `$$`.
        return re.sub(there, lambda found: self._texts[found[0]], text.replace("$$", "$"))

    @property
    def code(self) -> int | None:
        """The container's exit code as a kubelet reports it; None while it runs."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._end_all()
        return code if code >= 0 else 128 - code

    def wait(self) -> int:
        code = wait_until(lambda: (code := self.code) is not None and (code,))
        assert code
        return code[0]

    def stop(self) -> None:
        """Send SIGTERM to the container's first process."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """End all processes of the container, as the end of its machine does."""
        self._end_all()
        if self._process is not None:
            self._process.wait()

    def _end_all(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def cut_storage(self) -> None:
        """Take the shared file system from this pod: each call on it fails."""
        path = self.folder / "checkpoints"
        path.unlink()
        path.symlink_to(self.folder / "no-storage")

    def crash(self) -> None:
        """Let the trainer end with a fault."""
        (self.folder / "crash").touch()

    def log(self, container: str = WORK) -> str:
        path = self.folder / f"{container}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def trainer(job: str = "resnet", script: str = TRAINER) -> dict[str, Any]:
    """Return the keys of an entry whose command is ``script``."""
    return {"name": job, "command": ["/bin/sh", "-c", script], "datasets": []}

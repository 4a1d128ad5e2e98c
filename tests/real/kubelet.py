"""What a kubelet and a Job controller do with a rendered Job, with real containers: one pod after another."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from infra.kubernetes.context import Manifest
from packages.environments import ROOT
from tests.kubernetes.entries import of_kind, rendered
from tests.kubernetes.test_policies import verdict
from tests.real import containers

LEASE_SECONDS: Final = 24
STEPS: Final = 400
TRAINING: Final = f"""
import os, time
from pathlib import Path
from spot_training.interval import Interval
from spot_training.spot import Spot

spot = Spot(steps={STEPS})
saved = spot.restore()
step = saved.step if saved else 0
said = Path(os.environ["GPU_SPOT_CHECKPOINTS"]) / ".steps"
with said.open("a") as log:
    print("begin", step, file=log, flush=True)
    while step < {STEPS}:
        time.sleep(0.02)
        step += 1
        print(step, file=log, flush=True)
        if step % 25 == 0 or spot.should_stop():
            spot.save(step, lambda folder: (folder / "state").write_text(str(step)))
        if spot.should_stop():
            raise SystemExit(0)
spot.finish()
"""


class Kubelet:
    """Runs the pods of one Job in ``place``; ``docker`` leads to an engine that has ``containers.PYTHON``."""

    def __init__(self, place: Path, job: Manifest) -> None:
        """``place`` has the programs of ``containers.image`` in ``root/bin``: the Python image lacks them."""
        self.job = job
        self.pod: Manifest = job["spec"]["template"]["spec"]
        [self.container] = self.pod["containers"]
        self._place, self._number = place, 0
        self.checkpoints = place / "efs"
        user = self.pod["securityContext"]
        self._user = f"{user['runAsUser']}:{user['runAsGroup']}"
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir()
        self.checkpoints.chmod(0o777)

    @property
    def name(self) -> str:
        """Of the last pod that was started."""
        return f"{self._place.name}-{self._number}"

    def start(self) -> str:
        """Start a pod: the Job's very command, user, variables and mounts; return its name."""
        self._number += 1
        name = self.name
        argv = ["docker", "run", "--detach", "--name", name, "--user", self._user, "--network", "none"]
        argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        argv += ["--volume", f"{self._place / 'root/bin'}:/bin:ro"]
        volumes = {each["name"]: each for each in self.pod["volumes"]}
        for mount in self.container["volumeMounts"]:
            argv += ["--volume", f"{self._folder(name, volumes[mount['name']])}:{mount['mountPath']}"]
        for variable in self.container["env"]:
            argv += ["--env", f"{variable['name']}={_expanded(variable.get('value', ''))}"]
        # The pod after one that was lost waits for its lease, which is longer in a cluster.
        argv += ["--env", f"GPU_SPOT_LEASE_SECONDS={LEASE_SECONDS}"]
        program, *arguments = map(_expanded, self.container["command"])
        argv += ["--workdir", self.container["workingDir"], "--entrypoint", program]
        subprocess.run([*argv, containers.PYTHON, *arguments], check=True, capture_output=True)
        return name

    def end(self, pod: str, grace: float | None = None) -> int:
        """End a pod as a drain does, within ``grace`` seconds (the pod's own); return its exit code."""
        seconds = self.pod["terminationGracePeriodSeconds"] if grace is None else grace
        subprocess.run(["docker", "stop", "--time", str(int(seconds)), pod], check=True, capture_output=True)
        return self.wait(pod)

    def lose(self, pod: str) -> int:
        """Take a pod without a word, as a host that fails; return its exit code."""
        subprocess.run(["docker", "kill", "--signal", "KILL", pod], check=True, capture_output=True)
        return self.wait(pod)

    def wait(self, pod: str) -> int:
        result = subprocess.run(
            ["docker", "wait", pod], check=True, capture_output=True, text=True, timeout=120
        )
        return int(result.stdout)

    def said(self, pod: str) -> str:
        result = subprocess.run(["docker", "logs", pod], check=True, capture_output=True, text=True)
        return result.stdout + result.stderr

    def verdict(self, code: int, *, disrupted: bool = False) -> str:
        """Return what the Job controller makes of a pod that ended so."""
        return verdict(self.job, disrupted=disrupted, code=code)

    def deadlines(self) -> list[float]:
        """Return the deadlines of all notices that pods' commands were given."""
        found = sorted(self._place.glob("*/run/notice.json"))
        return [float(json.loads(one.read_text("utf-8"))["deadline"]) for one in found]

    def steps(self) -> list[str]:
        """Return what the training wrote down: ``begin N`` at each start, and each step."""
        found = list(self.checkpoints.glob("*/.steps"))
        return found[0].read_text("utf-8").splitlines() if found else []

    def wait_for(self, step: int) -> None:
        """Wait until the training has done so many steps."""
        end = time.monotonic() + 120
        while str(step) not in self.steps():
            assert time.monotonic() < end, self.said(self.name)
            time.sleep(0.05)

    def _folder(self, pod: str, volume: Manifest) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.checkpoints
        folder = self._place / pod / volume["name"]
        folder.mkdir(parents=True)
        folder.chmod(0o777)  # as the kubelet makes them
        return folder


@contextlib.contextmanager
def engine() -> Iterator[Path]:
    """Run an engine with the image of Jobs; yield a folder for them. Raises ``containers.LackingError``."""
    with containers.folder() as place, containers.docker(place):
        source = ROOT / "packages" / "spot-training" / "src" / "spot_training"
        containers.take_in(containers.python_image([(source, "spot_training")]), containers.PYTHON)
        yield place


def job(place: Path, *command: str) -> Kubelet:
    """Return who runs the Job of an entry with that command, in a new folder of ``place``."""
    entry = {"command": list(command), "datasets": [], "environment": {"PYTHONPATH": "/app"}}
    folder = Path(tempfile.mkdtemp(prefix="job-", dir=place))
    folder.chmod(0o755)
    (folder / "root").symlink_to(place / "root")
    return Kubelet(folder, of_kind(rendered(job=entry), "Job"))


def training(place: Path) -> Kubelet:
    """Return who runs the Job of ``TRAINING``."""
    return job(place, str(containers.INTERPRETER), "-c", TRAINING)


def played(kubelet: Kubelet) -> dict[str, Any]:
    """Play the Job of ``TRAINING``: told at one moment, lost at another; return what came of it."""
    codes, verdicts = [], []
    for step, lose in ((60, False), (180, True)):
        pod = kubelet.start()
        kubelet.wait_for(step)
        codes.append(kubelet.lose(pod) if lose else kubelet.end(pod))
        verdicts.append(kubelet.verdict(codes[-1], disrupted=lose))
    codes.append(kubelet.wait(kubelet.start()))
    verdicts.append(kubelet.verdict(codes[-1]))
    begins = [int(line.split()[1]) for line in kubelet.steps() if line.startswith("begin")]
    return {"codes": codes, "verdicts": verdicts, "begins": begins, "last": kubelet.steps()[-1]}


def _expanded(text: str) -> str:
    return text.replace("$$", "$")

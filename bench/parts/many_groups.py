"""Time the forecast of a stack of many groups by its command."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

_SUBREAPER: Final = 36
"""``PR_SET_CHILD_SUBREAPER`` (prctl(2))."""


def many_groups(count: int) -> dict[str, Any]:
    """Return a stack file with so many groups, services and jobs of several kinds."""
    types = ["g6.xlarge", "g5.xlarge", "g4dn.xlarge", "g6e.xlarge"]
    services = [
        {
            "name": f"service-{index:02}",
            "capacity": {
                "kind": "mixed-asg",
                "target": 1 + index,
                "instanceTypes": types[: 1 + index % 4],
                "fallback": {"policyParameters": {"shortageCost": (10, 30, 100)[index % 3]}},
            },
        }
        for index in range(count - count // 3)
    ]
    training = [
        {
            "name": f"job-{index:02}",
            "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": types[: 1 + index % 4]},
            "repository": "https://github.com/example/training",
            "revision": "0123456789abcdef0123456789abcdef01234567",
            "command": ["python", "train.py", "--seed", str(index)],
            "volumeGiB": 100 + index,
        }
        for index in range(count // 3)
    ]
    zones = [f"us-west-2{letter}" for letter in "abc"]
    return {
        "config": {
            "aws:region": "us-west-2",
            "gpu-spot:network": {"cidr": "10.20.0.0/16", "zones": zones, "egress": "nat-gateway"},
            "gpu-spot:services": services,
            "gpu-spot:training": training,
        }
    }


def timed(groups: int) -> dict[str, float]:
    """Forecast a stack of many groups and a change of it on two cores, by the command."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)  # adopt orphans of the command, to include their time
    with tempfile.TemporaryDirectory() as folder:
        base, head = (Path(folder) / name for name in ("base.yaml", "head.yaml"))
        stack = many_groups(groups)
        base.write_text(yaml.safe_dump(stack), encoding="utf-8")
        stack["config"]["gpu-spot:services"][0]["capacity"]["target"] = 3
        head.write_text(yaml.safe_dump(stack), encoding="utf-8")
        command = [Path(sys.executable).parent / "gpu-spot", "forecast", "--json", "--processes", "2"]
        spent, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(  # noqa: S603
            [*command, "--base", str(base), "--head", str(head)],
            check=True,
            capture_output=True,
            preexec_fn=partial(os.sched_setaffinity, 0, cores),  # no other process runs
        )
        seconds = time.perf_counter() - started_at
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(json.loads(done.stdout)["head"]["groups"]) == groups
    busy = used.ru_utime + used.ru_stime - spent.ru_utime - spent.ru_stime
    return {f"seconds_{groups}_groups": seconds, f"cpu_seconds_{groups}_groups": busy}

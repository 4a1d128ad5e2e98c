"""Duration of a deployment into the local cloud, for stacks of three sizes (``make bench-deploy``).

Each measurement has its own process, as a deployment has. ``deploy_seconds`` is the duration of the program
with all its resources, ``wall_seconds`` that of the process, with interpreter start and imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import deploy, sandbox
from research.parts.run import MACHINE, parser_of, write

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-west-2"


def stack(zones: int, services: int, **capacity: Any) -> dict[str, Any]:
    """Return the dev stack's configuration with this many zones, and this many copies of its service."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text("utf-8"))[
        "config"
    ]
    config["gpu-spot:network"]["zones"] = [f"{REGION}{letter}" for letter in "abcd"[:zones]]
    [service] = config["gpu-spot:services"]
    service["capacity"] |= capacity
    config["gpu-spot:services"] = [
        {**deepcopy(service), "name": f"service-{number}"} for number in range(services)
    ]
    return config


STACKS = {
    "50": stack(1, 1, kind="spot-fleet", fleetType="request", fallback={"enabled": False}),
    "100": stack(3, 3),
    "300": stack(3, 15),
}


def project(folder: Path, config: dict[str, Any]) -> None:
    """Write a project with one stack, ``bench``, that runs this repository's program."""
    content = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**content, "main": str(ROOT / "infra")}), "utf-8")
    (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": config}), "utf-8")


def once(folder: Path) -> dict[str, Any]:
    """Deploy the stack of a project; return the number of its resources and the seconds."""
    with sandbox(REGION) as clients:
        started = time.perf_counter()
        deployment = deploy(clients, load(folder, "bench"))
        seconds = time.perf_counter() - started
    types = [resource.type for resource in deployment.resources if not resource.is_component]
    return {"resources": len(types), "resource_types": len(set(types)), "deploy_seconds": seconds}


def measure(config: dict[str, Any], runs: int) -> dict[str, Any]:
    """Deploy ``runs`` times, each in its own process; return medians."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), config)
        for _ in range(runs):
            started = time.perf_counter()
            done = subprocess.run(  # noqa: S603 - this very script
                [sys.executable, "-m", "research.rehearsed.deploy", "--once", folder],
                cwd=ROOT,
                check=True,
                capture_output=True,
                text=True,
            )
            results.append(json.loads(done.stdout) | {"wall_seconds": time.perf_counter() - started})
    middle = {
        key: round(median(result[key] for result in results), 3) for key in ("deploy_seconds", "wall_seconds")
    }
    return {
        **results[0],
        **middle,
        "milliseconds_per_resource": _seconds_per_resource(results[0]["resources"], middle),
    }


def _seconds_per_resource(resources: int, middle: dict[str, float]) -> float:
    return round(1000 * middle["deploy_seconds"] / resources, 1)


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = parser_of(__doc__, "deploy")
    parser.add_argument("--runs", type=int, default=3, help="deployments of each stack (default: 3)")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(args.once)))
        return
    stacks = {}
    for name, config in STACKS.items():
        stacks[name] = result = measure(config, args.runs)
        print(
            f"about {name:>3}: {result['resources']:>3} resources of {result['resource_types']} types, "
            f"{result['deploy_seconds']:.1f} s, with start {result['wall_seconds']:.1f} s"
        )
    write(args.out, {"machine": MACHINE, "runs": args.runs, "stacks": stacks})


if __name__ == "__main__":
    main()

"""Entries as Kubernetes objects: validity of all, and resumption of a Job (``make bench-kubernetes``).

Every shape of entry is rendered and validated with the schemas of each version that a stack file may name.
Then a Job's container command runs in real containers, gets notices, is killed repeatedly, and resumes. Last,
jobs live on Kubernetes' own Job controller: nodes end or are cut off, pods are drained and deleted, revisions
change, the git host is down. On a machine without containers, or without the programs of a control plane,
that part is skipped, and the result gives the reason.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

from bench.parts import needs
from bench.parts.run import parser_of, write
from infra.kubernetes.context import Manifest
from infra.schema import Kubernetes
from tests.cluster import lives
from tests.kubernetes.entries import variants
from tests.oracles.kubernetes import CUSTOM_WITHOUT_SCHEMA, validation_error
from tests.real import containers, kubelet

VERSIONS = get_args(Kubernetes.model_fields["version"].annotation)
RUNS = 5


def validated() -> dict[str, Any]:
    """Return the number of objects, the number of invalid ones, and the kinds without a schema."""
    manifests: list[Manifest] = [manifest for entry in variants().values() for manifest in entry]
    refused = [
        f"{version}: {violation}"
        for version in VERSIONS
        for manifest in manifests
        if (violation := validation_error(manifest, version))
    ]
    custom = [manifest["kind"] for manifest in manifests if manifest["kind"] in CUSTOM_WITHOUT_SCHEMA]
    return {
        "versions": list(VERSIONS),
        "objects": len(manifests),
        "kinds": len({manifest["kind"] for manifest in manifests}),
        "invalid_objects": len(refused),
        "refusals": refused,
        "custom_without_schema": len(custom),
        "kinds_without_schema": sorted({*custom}),
    }


def resumed(runs: int) -> dict[str, Any]:
    """Simulate runs in real containers, each with a notice and a loss without notice."""
    reports: list[dict[str, Any]] = []
    try:
        with kubelet.engine() as engine:
            reports = [kubelet.played(kubelet.training(engine)) for _ in range(runs)]
    except containers.LackingError as lacking:
        return {"runs": 0, "resumed_runs": 0, "lacking": str(lacking)}
    good = [
        report
        for report in reports
        if report["verdicts"] == ["Ignore", "Ignore", "done"]
        and 0 == report["begins"][0] < report["begins"][1]
    ]
    return {"runs": len(reports), "resumed_runs": len(good), "played": reports}


def lived(minutes: float, folders: int, seed: int) -> dict[str, Any]:
    """Play random lives of jobs for so many minutes, of as many checkpoint folders at once."""
    try:
        with tempfile.TemporaryDirectory(prefix="lives-") as folder:
            return lives.played(Path(folder), minutes, folders, seed)
    except lives.LackingClusterError as lacking:
        needs.say(f"the control plane is left out: {lacking}")
        return {"lives": 0, "double_trainers": 0, "wrongly_failed": 0, "lacking_cluster": str(lacking)}


def main() -> int:
    """Run it; return 1 unless all objects are valid, all runs resumed and no two trainers were alive."""
    parser = parser_of(__doc__, "kubernetes")
    parser.add_argument("--runs", type=int, default=RUNS, help="how many Jobs are played")
    parser.add_argument("--minutes", type=float, default=5, help="how long jobs live on the control plane")
    parser.add_argument("--folders", type=int, default=4, help="how many jobs live at once")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    needs.containers_or_none(*containers.DOCKER)
    result = {
        **validated(),
        **resumed(options.runs),
        **lived(options.minutes, options.folders, options.seed),
    }
    write(options.out, result)
    print(
        json.dumps(
            {key: value for key, value in result.items() if key not in ("played", "refusals")}, indent=2
        )
    )
    return int(
        bool(result["invalid_objects"] or result["double_trainers"] or result["wrongly_failed"])
        or result["resumed_runs"] != result["runs"]
    )


if __name__ == "__main__":
    sys.exit(main())

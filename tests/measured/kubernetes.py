"""Entries as Kubernetes objects: validity of all, and resumption of a Job (``make bench-kubernetes``).

Every shape of entry is rendered and validated with the schemas of each version that a stack file may name.
Then a Job's container command runs in real containers, gets notices, is killed repeatedly, and resumes. Last,
a real API server is asked about all objects, jobs live on Kubernetes' own Job controller (nodes end, pods are
drained, deleted and killed, revisions change, the git host is down), and services are scaled down while they
work. On a machine without containers, or without the programs of a control plane, that part is skipped, and
the result gives the reason.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

from infra.kubernetes.context import Manifest
from infra.schema import Kubernetes
from research.parts.needs import say
from research.parts.run import parser_of, write
from tests.cluster import clusters, generated, lives, service_plays
from tests.cluster.client import ClusterApi
from tests.kubernetes.entries import variants
from tests.measured.parts import needs
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
        if report["verdicts"] == ["FailIndex", "FailIndex", "done"]
        and 0 == report["begins"][0] < report["begins"][1]
    ]
    return {"runs": len(reports), "resumed_runs": len(good), "played": reports}


def clustered(minutes: float, folders: int, scale_downs: int, seed: int) -> dict[str, Any]:
    """Ask a real API server about the objects, and play on its controllers.

    Jobs live for so many minutes, of as many checkpoint folders at once; services are scaled down so often.
    """
    with tempfile.TemporaryDirectory(prefix="lives-") as name:
        folder = Path(name)
        try:
            with clusters.cluster(_folder(folder, "control-plane")) as api, ThreadPoolExecutor() as pool:
                verdicts = _server_verdicts(api)
                trainers = _folder(folder, "trainers")
                lived = pool.submit(lives.played, api, trainers, minutes, folders, seed)
                return {**verdicts, **_scaled_down(api, scale_downs), **lived.result()}
        except clusters.LackingClusterError as lacking:
            say(f"the control plane is left out: {lacking}")
            unknown = ("double_trainers", "wrongly_failed", "restart_p95_s", "cut_short", "server_rejected")
            return {
                **dict.fromkeys(unknown),
                **{"lives": 0, "scale_downs": 0, "lacking_cluster": str(lacking)},
            }


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def _server_verdicts(api: ClusterApi) -> dict[str, Any]:
    """Return what the API server rejects of the shapes of entries, and of generated entries."""
    drawn = generated.entries()
    objects = clusters.distinct(item for items in (*variants().values(), *drawn.accepted) for item in items)
    clusters.create_namespaces(api, objects)
    rejections = clusters.refusals(api, objects)
    return {
        "server_objects": len(objects),
        "server_rejected": len(rejections),
        "server_rejections": rejections,
        "generated_accepted": len(drawn.accepted),
        "generated_rejected_in_preview": len(drawn.rejected),
    }


def _scaled_down(api: ClusterApi, events: int) -> dict[str, Any]:
    total = service_plays.scaled_down(api, events)
    return {
        "scale_downs": total.events,
        "ended_workers": total.deleted,
        "ended_in_work": total.in_work,
        "cut_short": total.cut_short,
    }


def main() -> int:
    """Run it; return 1 unless all objects are valid, all runs resumed and no two trainers were alive."""
    parser = parser_of(__doc__, "kubernetes")
    parser.add_argument("--runs", type=int, default=RUNS, help="how many Jobs are played")
    parser.add_argument("--minutes", type=float, default=5, help="how long jobs live on the control plane")
    parser.add_argument("--folders", type=int, default=4, help="how many jobs live at once")
    parser.add_argument("--scale-downs", type=int, default=20, help="how often services are scaled down")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    needs.containers_or_none(*containers.DOCKER)
    result = {
        **validated(),
        **resumed(options.runs),
        **clustered(options.minutes, options.folders, options.scale_downs, options.seed),
    }
    write(options.out, result)
    lists = ("played", "refusals", "server_rejections")
    print(json.dumps({key: value for key, value in result.items() if key not in lists}, indent=2))
    wrong = ("invalid_objects", "server_rejected", "double_trainers", "wrongly_failed", "cut_short")
    return int(any(result[key] for key in wrong) or result["resumed_runs"] != result["runs"])


if __name__ == "__main__":
    sys.exit(main())

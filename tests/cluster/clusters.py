"""A Kubernetes cluster for tests and benchmarks: a kubeconfig's, or a control plane built and run here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from infra.kubernetes.context import Manifest
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.local import JOBS_AUDIT, control_plane
from tests.waiting import wait_until

_BUILD: Final = Path(__file__).parent / "control_plane" / "build"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES: Final = "/api/v1/namespaces"
_EMPTY: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system", "local-path-storage"})
"""Namespaces of a cluster that is empty; the last is of kind and k3s."""
_PART_OF: Final = {"labelSelector": "app.kubernetes.io/part-of=gpu-spot"}
_IN_CLUSTER: Final = (
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    *(
        f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{ending}"
        for ending in ("ies", "ybindings")
    ),
)
_WITH_PODS: Final = ("/apis/batch/v1/{}/jobs", "/apis/apps/v1/{}/deployments", "/apis/apps/v1/{}/replicasets")


class LackingClusterError(Exception):
    """This machine has no control plane, or its cluster is not empty; the message says what is wrong."""


def refusals(api: ClusterApi, objects: Iterable[Manifest]) -> list[str]:
    """Ask the server about objects without storing them; return what it refuses, and why."""
    refused = []
    for item in objects:
        try:
            api.apply(item, dryRun="All")
        except RefusedError as error:
            refused.append(f"{item['kind']} {item['metadata']['name']}: {error}")
    return refused


def distinct(manifests: Iterable[Manifest]) -> list[Manifest]:
    return list({json.dumps(item, sort_keys=True): item for item in manifests}.values())


def create_namespaces(api: ClusterApi, objects: Iterable[Manifest]) -> None:
    for item in objects:
        if item["kind"] == "Namespace":
            api.apply(item)


@contextlib.contextmanager
def cluster(
    folder: Path, kubeconfig: str | None = None, audit: Sequence[Manifest] = JOBS_AUDIT
) -> Iterator[ClusterApi]:
    """Yield the API of a kubeconfig's empty cluster, or of a control plane that runs in ``folder``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpu-spot", "control-plane")
    with contextlib.ExitStack() as stack:
        if kubeconfig:
            [definitions] = _built(cache, "crds")
            path = Path(kubeconfig)
        else:
            for program in ("etcd", "openssl", "go"):
                if shutil.which(program) is None:
                    raise LackingClusterError(f"no program {program}")
            program_path, definitions = _built(cache)
            path = stack.enter_context(control_plane(program_path, folder, audit))
        client = stack.enter_context(contextlib.closing(ClusterApi(path)))
        if kubeconfig:
            _check_is_empty(client, kubeconfig)
        created = _define(client, definitions)
        yield client
        if kubeconfig:
            _clean_up(client, created)


def _built(cache: Path, *arguments: str) -> list[Path]:
    built = subprocess.run([_BUILD, cache, *arguments], capture_output=True, text=True, check=False)
    if built.returncode:
        last = built.stderr.strip().splitlines()[-1:]
        raise LackingClusterError(f"{_BUILD} failed with {built.returncode}: {''.join(last)}")
    return [Path(line) for line in built.stdout.splitlines()]


def _check_is_empty(client: ClusterApi, kubeconfig: str) -> None:
    """Refuse a cluster that others may use: the tests register nodes and delete objects."""
    names = {item["metadata"]["name"] for item in client.items(_NAMESPACES)}
    if more := sorted(names - _EMPTY):
        raise LackingClusterError(
            f"{kubeconfig}: the cluster has namespaces {', '.join(more)}; use an empty one"
        )


def _define(client: ClusterApi, folder: Path) -> list[str]:
    """Define the custom resources; return the paths of the definitions that were not there."""
    created = []
    for file in sorted(folder.glob("*.yaml")):
        # As text: definitions of a megabyte take PyYAML half a minute.
        for document in f"\n{file.read_text('utf-8')}".split("\n---"):
            if "\nkind: CustomResourceDefinition" in document:
                with contextlib.suppress(RefusedError):  # 409: it is there
                    definition = client.request("POST", _DEFINITIONS, document.encode(), "application/yaml")
                    created.append(f"{_DEFINITIONS}/{definition['metadata']['name']}")

    def are_established() -> bool:
        return all(_is_established(item) for item in client.items(_DEFINITIONS))

    wait_until(are_established, interval_seconds=0.2)
    return created


def _is_established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _clean_up(client: ClusterApi, definitions: list[str]) -> None:
    """Delete what tests created, and wait until it is gone: the next run needs an empty cluster."""
    names = [item["metadata"]["name"] for item in client.items(_NAMESPACES, **_PART_OF)]
    for path in _WITH_PODS:
        for name in names:
            client.delete(path.format(f"namespaces/{name}"), {"propagationPolicy": "Background"})
    for name in names:
        client.delete(f"{_NAMESPACES}/{name}")

    def are_gone() -> bool:
        there = {item["metadata"]["name"] for item in client.items(_NAMESPACES, **_PART_OF)}
        for name in there:
            client.delete(f"{_NAMESPACES}/{name}/pods", {"gracePeriodSeconds": 0})
        return not there

    wait_until(are_gone, interval_seconds=0.5)
    for path in _IN_CLUSTER:
        for item in client.items(path, **_PART_OF):
            client.delete(f"{path}/{item['metadata']['name']}")
    for path in definitions:
        client.delete(path)
    wait_until(lambda: not _left(client, definitions), interval_seconds=0.5)


def _left(client: ClusterApi, definitions: list[str]) -> list[str]:
    there = [f"{_DEFINITIONS}/{item['metadata']['name']}" for item in client.items(_DEFINITIONS)]
    objects = [item["metadata"]["name"] for path in _IN_CLUSTER for item in client.items(path, **_PART_OF)]
    return [*objects, *(path for path in definitions if path in there)]

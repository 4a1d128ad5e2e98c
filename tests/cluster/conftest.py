"""A Kubernetes control plane: the empty cluster of ``KUBECONFIG``, or one on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from infra.kubernetes.context import Manifest
from tests.cluster.client import ClusterApi, RefusedError
from tests.cluster.local import control_plane
from tests.waiting import wait_until

VARIABLE: Final = "KUBECONFIG"
COUNTS_PROPERTY: Final = "cluster"
_BUILD: Final = Path(__file__).parent / "control_plane" / "build"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_EMPTY: Final = frozenset({"default", "kube-node-lease", "kube-public", "kube-system", "local-path-storage"})
"""Namespaces of a cluster that is empty; the last is of kind and k3s."""
_PART_OF: Final = {"labelSelector": "app.kubernetes.io/part-of=gpu-spot"}
_IN_CLUSTER: Final = (
    "/api/v1/namespaces",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    *(
        f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{ending}"
        for ending in ("ies", "ybindings")
    ),
)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    """Return the cluster's API; the custom resources of the stacks' charts are defined."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpu-spot", "control-plane")
    kubeconfig = os.environ.get(VARIABLE)
    with contextlib.ExitStack() as stack:
        if kubeconfig:
            [definitions] = _built(cache, "crds")
            path = Path(kubeconfig)
        else:
            program, definitions = _built(cache)
            path = stack.enter_context(control_plane(program, tmp_path_factory.mktemp("control-plane")))
        client = stack.enter_context(contextlib.closing(ClusterApi(path)))
        if kubeconfig:
            _check_is_empty(client, kubeconfig)
        created = _define(client, definitions)
        yield client
        if kubeconfig:
            _clean_up(client, created)


def _built(cache: Path, *arguments: str) -> list[Path]:
    built = subprocess.run(
        [str(_BUILD), str(cache), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if built.returncode:
        pytest.exit(f"tests/cluster/control_plane/build failed with {built.returncode}", built.returncode)
    return [Path(line) for line in built.stdout.splitlines()]


def _check_is_empty(client: ClusterApi, kubeconfig: str) -> None:
    """End the run for a cluster that others may use: the tests register nodes and delete objects."""
    names = {item["metadata"]["name"] for item in client.items("/api/v1/namespaces")}
    if more := sorted(names - _EMPTY):
        pytest.exit(f"{VARIABLE}={kubeconfig}: namespaces {', '.join(more)}, allowed: an empty cluster", 2)


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
    for path in definitions:
        client.delete(path)
    for path in _IN_CLUSTER:
        for item in client.items(path, **_PART_OF):
            client.delete(f"{path}/{item['metadata']['name']}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write what the API server accepted."""
    lines = [
        str(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == COUNTS_PROPERTY and report.when == "call"
    ]
    if lines:
        terminalreporter.section("objects at the API server")
        for line in lines:
            terminalreporter.write_line(line)

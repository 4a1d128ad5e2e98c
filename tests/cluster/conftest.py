"""The fixture of a Kubernetes cluster: the empty one of ``KUBECONFIG``, or a control plane on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cluster import clusters
from tests.cluster.client import ClusterApi

VARIABLE: Final = "KUBECONFIG"
COUNTS_PROPERTY: Final = "cluster"


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    """Return the cluster's API; the custom resources of the stacks' charts are defined."""
    try:
        with clusters.cluster(tmp_path_factory.mktemp("control-plane"), os.environ.get(VARIABLE)) as client:
            yield client
    except clusters.LackingClusterError as error:
        pytest.exit(f"tests/cluster: {error}", 2)


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

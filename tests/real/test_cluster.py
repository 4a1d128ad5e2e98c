"""A cluster of three RabbitMQ nodes on bad days; the long form: ``make bench-service``, ``make soak``."""

from __future__ import annotations

import pytest

from rehearsal.machines.real.cluster import may_have_own_network
from tests.real import cluster_days


@pytest.mark.soak
def test_nothing_is_lost_on_bad_days() -> None:
    """One rolling restart, an alarm, cut logins and kills of workers."""
    if not may_have_own_network():
        pytest.skip("needs root, for a network namespace")
    days = cluster_days.run(cluster_days.Plan(), seconds=300)
    assert (days.lost, days.wrong, days.unmarked_duplicates) == (0, 0, 0), days
    assert days.clients_alive == cluster_days.CLIENTS
    assert (days.cluster_restarts, days.handshakes_cut, days.kills) == (1, 10, 4)
    assert days.alarm_done["memory"] > 0

"""What the program knows of a service's address once it is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from contracts.agent.config import HttpPods
from infra.components.monitoring.alarm_spec import AlarmSpec
from infra.components.monitoring.dashboard import DashboardRow


@dataclass(frozen=True)
class DeclaredHttp:
    """A service's address and its part of monitoring.

    ``workers_security_group_id`` is that of instances; pods have their cluster's.
    """

    address: pulumi.Output[str]
    workers_security_group_id: pulumi.Output[str] | None
    proxies_role_arn: pulumi.Output[str]
    alarms: Sequence[AlarmSpec]
    row: DashboardRow


@dataclass(frozen=True)
class HttpCluster:
    """The cluster that the workers are pods of; its security group has its API and its pods."""

    pods: pulumi.Output[HttpPods]
    security_group_id: pulumi.Input[str]

"""The capacity services by kind of resource."""

from __future__ import annotations

from typing import Any

from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.aws.capacity.capacity_service import CapacityService
from lambdas.aws.capacity.spot_fleet import SpotFleetService
from lambdas.aws.settings import AUTO_SCALING, SPOT_FLEET


def capacity_services(autoscaling: Any, ec2: Any) -> dict[str, CapacityService]:
    """Return the services; the arguments are boto3 clients."""
    return {AUTO_SCALING: AutoScalingService(autoscaling), SPOT_FLEET: SpotFleetService(ec2)}

"""Spot Fleets. moto stores the request; only join and leave change its instances."""

from __future__ import annotations

from typing import Any, Final

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec
from pulumi_on_moto.mapping.capacity.requirements import check_of_fleet, expand, specification

_WAITS: Final = "nothing to wait for or to delete here"
_RENAMED: Final = {"fleetType": "type", "instanceInterruptionBehaviour": "instanceInterruptionBehavior"}


def _template_config(draft: ResourceRequest, config: dict[str, Any]) -> dict[str, Any]:
    named = specification(config["launchTemplateSpecification"])
    check_of_fleet(draft, config.get("overrides") or [])
    overrides = expand(draft, config.get("overrides") or [])
    return {**config, "launchTemplateSpecification": named, "overrides": overrides}


def _request(draft: ResourceRequest) -> None:
    if draft.inputs.get("allocationStrategy") != "lowestPrice":
        draft.take("instancePoolsToUseCount")
    for key in ("loadBalancers", "targetGroupArns"):
        if draft.take(key):
            raise draft.fail(f"input {key!r}: load balancers are not emulated locally")
    configs = [_template_config(draft, config) for config in draft.need("launchTemplateConfigs")]
    settings = {_RENAMED.get(key, key): value for key, value in draft.inputs.items()}
    settings["launchTemplateConfigs"] = configs
    draft.inputs.clear()
    shaped = draft.matched("ec2", "RequestSpotFleet", settings, "spotFleetRequest", "SpotFleetRequestConfig")
    draft.put(SpotFleetRequestConfig=shaped)


def _outputs(resource: CreatedResource) -> dict[str, Any]:
    return {"arn": resource.arn("ec2", f"spot-fleet-request/{resource.id}"), "spotRequestState": "active"}


SPECS: dict[str, Spec] = {
    "aws:ec2/spotFleetRequest:SpotFleetRequest": Spec(
        "ec2.request_spot_fleet",
        "SpotFleetRequestId",
        tags="ec2",
        shape=_request,
        outputs=_outputs,
        no_effect={
            "waitForFulfillment": _WAITS,
            "terminateInstancesOnDelete": _WAITS,
            "excessCapacityTerminationPolicy": "the local market terminates only on request",
            "replaceUnhealthyInstances": "instances come and go by join and leave alone",
        },
    )
}

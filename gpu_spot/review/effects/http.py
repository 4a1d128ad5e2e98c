"""What changes of an HTTP service's address mean: for callers and requests, since no worker ends."""

from __future__ import annotations

from typing import Final

from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, changed_words, may_end, named
from gpu_spot.review.effects.harmless import is_harmless
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.values import grows, items, mapping

_PROXY: Final = "gpu-spot:proxy"
"""Tag of proxies, of their group and of their launch template."""
_REPLACED: Final = (
    "**proxies are replaced**, each after a new one takes requests; requests at it have drainSeconds"
)
_GROUP: Final = "aws:autoscaling/group:Group"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_BALANCER: Final = "aws:lb/loadBalancer:LoadBalancer"
_BUCKET: Final = "aws:s3/bucket:Bucket"
_LISTENER: Final = "aws:lb/listener:Listener"
_RECORD: Final = "aws:route53/record:Record"
_RULE: Final = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_TARGETS: Final = "aws:lb/targetGroup:TargetGroup"
_ACCESS: Final = "aws:eks/accessEntry:AccessEntry"
TYPES: Final = frozenset(
    {_ACCESS, _BALANCER, _BUCKET, _GROUP, _LISTENER, _RECORD, _RULE, _TARGETS, _TEMPLATE}
)
"""Types that an address has; of buckets, groups, rules and templates only its own are meant."""

_ENDED: Final = {
    _BALANCER: "callers of its name fail: a new one has another name",
    _TARGETS: "callers get 503 until the proxies are registered with the new one",
    _LISTENER: "callers fail until there is another",
    _RECORD: "callers of the name fail until there is another",
}
"""What the replacement or deletion of a resource means."""
_HARMLESS: Final = {
    _BALANCER: frozenset(
        {"accessLogs", "dropInvalidHeaderFields", "enableDeletionProtection", "securityGroups"}
    ),
    _LISTENER: frozenset({"certificateArn", "defaultActions", "sslPolicy"}),
    _RECORD: frozenset({"aliases"}),
    _TARGETS: frozenset({"deregistrationDelay", "healthCheck", "loadBalancingAlgorithmType"}),
}
"""Inputs whose change in place breaks no request."""
_GROUP_INPUTS: Final = frozenset(
    {
        *("desiredCapacity", "forceDelete", "healthCheckGracePeriod", "healthCheckType", "instanceRefresh"),
        "instanceMaintenancePolicy",
        *("maxSize", "minSize", "mixedInstancesPolicy", "tags", "targetGroupArns", "vpcZoneIdentifiers"),
    }
)


def http_effects(step: EngineStep, group: str) -> list[Effect] | None:
    """Return the effects of a change of an address; None if the resource is not part of one."""
    if step.type in _ENDED:
        return _address(step, group)
    if step.type in (_GROUP, _TEMPLATE) and _is_of_proxies(step):
        return _proxies(step, group)
    if step.type == _RULE and "-http-" in step.name and step.op in ("delete", "replace", "update"):
        return [Effect(Severity.WATCH, group, f"{named(step)} {changed_words(step)}: callers lose access")]
    if step.type == _ACCESS and step.name.endswith("-proxies-access") and step.op != "create":
        words = f"{named(step)} {changed_words(step)}: **proxies do not see new pods** while it is missing"
        return [Effect(Severity.WATCH, group, words)]
    if step.type == _BUCKET and step.name.endswith("-access-logs") and step.op == "delete":
        return [Effect(Severity.WATCH, group, f"{named(step)} is deleted, with the access logs in it")]
    return None


def _is_of_proxies(step: EngineStep) -> bool:
    tags = step.now.get("tags")
    keys = [mapping(tag).get("key") for tag in items(tags)] if isinstance(tags, list) else [*mapping(tags)]
    return _PROXY in keys


def _address(step: EngineStep, group: str) -> list[Effect]:
    if step.op == "create":
        return []
    if step.op in ("delete", "replace"):
        return [Effect(Severity.WATCH, group, f"{named(step)} is {step.op}d: **{_ENDED[step.type]}**")]
    rest = tuple(key for key in step.changed if key not in {*_HARMLESS[step.type], "tags", "tagsAll"})
    if step.op != "update" or not step.changed:
        return [may_end(step, group)]
    if not rest:
        return []
    if step.type == _BALANCER and rest == ("subnets",) and grows(step.old["subnets"], step.new["subnets"]):
        return []
    words = f"{named(step)} changes ({', '.join(rest)}): requests in flight may be cut"
    return [Effect(Severity.WATCH, group, words)]


def _proxies(step: EngineStep, group: str) -> list[Effect] | None:
    if step.op == "create":
        return []
    if step.op == "delete":
        return [Effect(Severity.WATCH, group, f"{named(step)} is deleted: **callers get 503**")]
    if step.op == "update" and step.type == _TEMPLATE:
        return [Effect(Severity.LATER, group, _REPLACED)]
    if step.op != "update" or not step.changed or not _GROUP_INPUTS.issuperset(step.changed):
        return None if is_harmless(step) else [may_end(step, group)]
    if "mixedInstancesPolicy" in step.changed:
        return [Effect(Severity.LATER, group, _REPLACED)]
    return [Effect(Severity.LATER, group, f"{named(step)}: another number or place of proxies")]

"""Rules for what the internet reaches: ingress rules and public endpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from contracts import names
from policy.rules.model import (
    UNKNOWN,
    ExternalFacts,
    PolicyRule,
    RuleSettings,
    Subject,
    as_list,
    names_setting,
)
from policy.rules.outsiders import shuts_out, too_public

_RULES_OF_ONE: Final = ("SecurityGroupIngressRule", "SecurityGroupRule")


_HTTPS: Final = 443
_PUBLIC_SERVICES: Final = {
    "publicServices": names_setting("Services whose address (http.public) may be on the internet.")
}
_SHARING: Final = re.compile(
    r"(?i)group|userGroups|(shared)?account(s|Ids?)|sharedAccounts|allowedPrincipals|principalArn"
)
"""Inputs that name who shares something."""
_TLS_POLICIES: Final = "ELBSecurityPolicy-TLS13-1-"
"""Prefix of AWS's policies with TLS 1.3; those with 1.2 or 1.3 as the lowest version follow."""


def _open_to_all(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if not _is_https_of(subject, settings):
        yield from _too_many(_sources(subject), "ingress")
    for rule in _ingress(subject):
        lists = [rule.get("prefixListId"), *as_list(rule.get("prefixListIds"))]
        yield from (
            f"admits the prefix list {name}, whose ranges are not known here; list the ranges"
            for name in lists
            if name not in (None, UNKNOWN, *settings["prefixLists"])
        )


def _is_https_of(subject: Subject, settings: RuleSettings) -> bool:
    """Return whether a rule admits callers to the HTTPS listener of a service that may be public."""
    ports = {subject.inputs.get("fromPort"), subject.inputs.get("toPort")}
    return (
        subject.kind == "SecurityGroupIngressRule"
        and ports == {_HTTPS}
        and _is_public_service(subject, settings)
    )


def _is_public_service(subject: Subject, settings: RuleSettings) -> bool:
    return subject.tags.get(names.TAG_GROUP) in settings["publicServices"]


def _open_in_total(
    subjects: Sequence[Subject], settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    """Add up the ingress rules of each security group: two halves of the internet are the internet.

    Rules whose group is unknown in a preview count as rules of one group.
    """
    sources: dict[str, list[str]] = {}
    urns: dict[str, str] = {}
    for subject in subjects:
        if subject.kind in _RULES_OF_ONE and not _is_https_of(subject, settings):
            group = str(subject.inputs.get("securityGroupId") or UNKNOWN)
            sources.setdefault(group, []).extend(_sources(subject))
            urns.setdefault(group, subject.urn)
    for group, cidrs in sorted(sources.items()):
        for message in _too_many(cidrs, f"ingress of all rules of {group}"):
            yield urns[group], message


def _too_many(cidrs: Iterable[str], subject: str) -> Iterator[str]:
    """Yield a message if the ranges together have more public addresses than a group may admit."""
    if ranges := too_public(cidrs):
        yield f"{subject} is open to {', '.join(ranges)}; use a network of your own or a security group"


def _sources(subject: Subject) -> Iterator[str]:
    """Yield the CIDR ranges that a resource admits."""
    for rule in _ingress(subject):
        yield from (str(rule[key]) for key in ("cidrIpv4", "cidrIpv6") if rule.get(key))
        for key in ("cidrBlocks", "ipv6CidrBlocks"):
            yield from (str(cidr) for cidr in as_list(rule.get(key)))


def _ingress(subject: Subject) -> Iterator[Mapping[str, Any]]:
    inputs = subject.inputs
    rules: list[Any] = []
    if subject.kind in ("SecurityGroup", "DefaultSecurityGroup"):
        rules = as_list(inputs.get("ingress"))
    elif subject.kind == "SecurityGroupIngressRule" or (
        subject.kind == "SecurityGroupRule" and inputs.get("type") == "ingress"
    ):
        rules = [inputs]
    yield from (rule for rule in rules if isinstance(rule, Mapping))  # others are unknown in a preview


def _function_url(inputs: Mapping[str, Any]) -> Iterator[str]:
    if inputs.get("authorizationType") not in ("AWS_IAM", UNKNOWN):
        yield f"authorizationType must be AWS_IAM, not {inputs.get('authorizationType')}"


def _cluster(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Check the API server's endpoint, which is public from everywhere by default.

    Source: EKS user guide, "Cluster API server endpoint".
    """
    endpoint = inputs.get("vpcConfig")
    if not isinstance(endpoint, Mapping) or endpoint.get("endpointPublicAccess") in (False, UNKNOWN):
        return
    cidrs = endpoint.get("publicAccessCidrs")
    if cidrs != UNKNOWN:
        yield from _too_many(as_list(cidrs) or ["0.0.0.0/0"], "access to the API server")


def _permission(inputs: Mapping[str, Any]) -> Iterator[str]:
    bounds = ("principalOrgId", "organizationId", "sourceAccount", "sourceArn")
    keys = {"sourceAccount": "aws:SourceAccount", "sourceArn": "aws:SourceArn"}
    conditions = [{"StringLike": {keys.get(key, "aws:PrincipalOrgID"): inputs.get(key)}} for key in bounds]
    condition = inputs.get("condition")
    if isinstance(condition, Mapping):  # of an event bus
        conditions.append({str(condition.get("type")): {str(condition.get("key")): condition.get("value")}})
    is_bound = any(map(shuts_out, conditions)) or inputs.get("functionUrlAuthType") == "AWS_IAM"
    principal = str(inputs.get("principal") or "")
    # A service acts for any account. Lambda guide, "Granting function access to AWS services".
    if (principal == "*" or principal.endswith(".amazonaws.com")) and not is_bound:
        yield f"allows the principal {principal}; name one of the account, or set one of {', '.join(bounds)}"


def _public_access_block(inputs: Mapping[str, Any]) -> Iterator[str]:
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if inputs.get(key) not in (True, "true", UNKNOWN):
            yield f"{key} must be true, not {inputs.get(key) or 'unset'}"


def _bucket_acl(inputs: Mapping[str, Any]) -> Iterator[str]:
    acl = str(inputs.get("acl") or "").lower()
    if acl.startswith("public-") or acl == "authenticated-read":
        yield f"acl must be private, not {acl}"
    grants = json.dumps([inputs.get("grants"), inputs.get("accessControlPolicy")], default=str)
    if group := re.search(r"groups/(?:global/(AllUsers|AuthenticatedUsers))", grants):
        yield f"has a grant to {group[1]}; grant to an account instead"


def _access_point(inputs: Mapping[str, Any]) -> Iterator[str]:
    block = inputs.get("publicAccessBlockConfiguration")
    if isinstance(block, Mapping):
        for key, value in block.items():
            if value not in (True, "true", UNKNOWN):
                yield f"{key} must be true, not {value}"


def _is_shared_with_all(value: Any, key: str = "") -> bool:
    """Whether something shares by itself: an image, a snapshot, a document, an endpoint's service."""
    if isinstance(value, Mapping):
        return any(_is_shared_with_all(inner, str(name)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return any(_is_shared_with_all(inner, key) for inner in value)
    return _SHARING.fullmatch(key) is not None and str(value).lower() in ("all", "*")


def _node_group(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Source: EKS API reference, RemoteAccessConfig: without groups the key opens port 22 to the internet."""
    access = inputs.get("remoteAccess")
    if isinstance(access, Mapping) and access.get("ec2SshKey") and not access.get("sourceSecurityGroupIds"):
        yield "remoteAccess opens SSH to the internet; set sourceSecurityGroupIds, or use Session Manager"


def _public_registry(_inputs: Mapping[str, Any]) -> Iterator[str]:
    yield "is a public repository; make it private"


_ENDPOINTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "AccessPoint": _access_point,
    "AccountPublicAccessBlock": _public_access_block,
    "PublicRepository": _public_registry,
    "BucketPublicAccessBlock": _public_access_block,
    "Cluster": _cluster,
    "EventPermission": _permission,
    "FunctionUrl": _function_url,
    "LayerVersionPermission": _permission,
    "NodeGroup": _node_group,
    "Permission": _permission,
}
"""The check of each resource kind that can be reached from the internet by itself."""


def _public_endpoints(subject: Subject, settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if subject.kind and subject.inputs.get("publiclyAccessible") not in (None, False, "false", UNKNOWN):
        yield "publiclyAccessible must be false, not true"
    kind = "PublicRepository" if subject.type.startswith("aws:ecrpublic/") else subject.kind
    if kind in _ENDPOINTS:
        yield from _ENDPOINTS[kind](subject.inputs)
    if subject.type.startswith("aws:s3/"):
        yield from _bucket_acl(subject.inputs)
    if subject.kind and _is_shared_with_all(subject.inputs):
        yield "is shared with everybody; name the accounts"
    is_balancer = subject.kind == "LoadBalancer" and subject.inputs.get("internal") not in (True, UNKNOWN)
    if is_balancer and not _is_public_service(subject, settings):
        yield "internal must be true; or list the service in publicServices"


def _load_balancers(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    """Check load balancers and their listeners, which belong to the service of their tag."""
    public = set[str]()
    for subject in subjects:
        if subject.kind == "LoadBalancer":
            yield from ((subject.urn, message) for message in _balancer(subject.inputs))
            if subject.inputs.get("internal") is not True:
                public.add(str(subject.tags.get(names.TAG_GROUP, "")))
    for subject in subjects:
        if subject.kind == "Listener":
            is_public = str(subject.tags.get(names.TAG_GROUP, "")) in public
            yield from ((subject.urn, message) for message in _listener(subject.inputs, is_public=is_public))


def _balancer(inputs: Mapping[str, Any]) -> Iterator[str]:
    if inputs.get("loadBalancerType", "application") not in ("application", UNKNOWN):
        return
    if inputs.get("dropInvalidHeaderFields") not in (True, UNKNOWN):
        yield "dropInvalidHeaderFields must be true"
    logs = inputs.get("accessLogs")
    is_logged = logs == UNKNOWN or (isinstance(logs, Mapping) and logs.get("enabled") in (True, UNKNOWN))
    if not is_logged:
        yield "accessLogs must be enabled"


def _listener(inputs: Mapping[str, Any], *, is_public: bool) -> Iterator[str]:
    protocol = inputs.get("protocol", "HTTP")
    if is_public and protocol not in ("HTTPS", "TLS", UNKNOWN):
        yield f"protocol of a public load balancer must be HTTPS, not {protocol}"
    policy = inputs.get("sslPolicy")
    if protocol in ("HTTPS", "TLS") and policy != UNKNOWN and not _is_modern(str(policy or "")):
        yield f"sslPolicy must be {_TLS_POLICIES}2-… or {_TLS_POLICIES}3-…, not {policy or 'unset'}"


def _is_modern(policy: str) -> bool:
    return policy.startswith((f"{_TLS_POLICIES}2-", f"{_TLS_POLICIES}3-"))


RULES: Final = (
    PolicyRule(
        "no-ingress-from-anywhere",
        "No security group admits the whole internet.",
        "mandatory",
        _open_to_all,
        settings={**_PUBLIC_SERVICES, "prefixLists": names_setting("Prefix lists that may be admitted.")},
    ),
    PolicyRule(
        "no-ingress-in-total",
        "The rules of a security group do not admit the internet in parts.",
        "mandatory",
        check_stack=_open_in_total,
        settings=_PUBLIC_SERVICES,
    ),
    PolicyRule(
        "no-public-endpoints",
        "Functions, clusters, brokers, databases, buckets and load balancers are not public.",
        "mandatory",
        _public_endpoints,
        settings=_PUBLIC_SERVICES,
    ),
    PolicyRule(
        "load-balancers",
        "Load balancers log requests and drop invalid headers; public ones use TLS 1.2 or later.",
        "mandatory",
        check_stack=_load_balancers,
    ),
)

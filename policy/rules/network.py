"""Rules for what the internet reaches: ingress rules and public endpoints."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from policy.rules.model import UNKNOWN, ExternalFacts, PolicyRule, RuleSettings, Subject, as_list

MAX_PUBLIC_V4: Final = 2**24
"""Public IPv4 addresses that one security group may admit: as many as a /8 has."""
MAX_PUBLIC_V6: Final = 2**96
"""IPv6 addresses that one security group may admit: as many as a /32 has."""
_PRIVATE: Final = tuple(
    ipaddress.IPv4Network(cidr)
    for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
)
_PRIVATE_V6: Final = ipaddress.IPv6Network("fc00::/7")
_RULES_OF_ONE: Final = ("SecurityGroupIngressRule", "SecurityGroupRule")


def _open_to_all(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    yield from _too_many(_sources(subject), "ingress")


def _open_in_total(
    subjects: Sequence[Subject], _settings: RuleSettings, _facts: ExternalFacts
) -> Iterator[tuple[str, str]]:
    """Add up the ingress rules of each security group: two halves of the internet are the internet.

    Rules whose group is unknown in a preview count as rules of one group.
    """
    sources: dict[str, list[str]] = {}
    urns: dict[str, str] = {}
    for subject in subjects:
        if subject.kind in _RULES_OF_ONE:
            group = str(subject.inputs.get("securityGroupId") or UNKNOWN)
            sources.setdefault(group, []).extend(_sources(subject))
            urns.setdefault(group, subject.urn)
    for group, cidrs in sorted(sources.items()):
        for message in _too_many(cidrs, f"ingress of all rules of {group}"):
            yield urns[group], message


def _too_many(cidrs: Iterable[str], subject: str) -> Iterator[str]:
    """Yield a message if the ranges together have more public addresses than a group may admit."""
    networks_v4, networks_v6 = [], []
    for cidr in cidrs:
        try:
            network = ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            continue  # unknown in a preview
        if isinstance(network, ipaddress.IPv6Network):
            networks_v6.append(network)
        else:
            networks_v4.append(network)
    public_v4 = [n for n in networks_v4 if not any(n.subnet_of(private) for private in _PRIVATE)]
    public_v6 = [n for n in networks_v6 if not n.subnet_of(_PRIVATE_V6)]
    addresses_v4 = sum(n.num_addresses for n in ipaddress.collapse_addresses(public_v4))
    addresses_v6 = sum(n.num_addresses for n in ipaddress.collapse_addresses(public_v6))
    if addresses_v4 > MAX_PUBLIC_V4 or addresses_v6 > MAX_PUBLIC_V6:
        ranges = ", ".join(str(network) for network in (*public_v4, *public_v6))
        yield f"{subject} from {ranges}, allowed: a network of your own or a security group"


def _sources(subject: Subject) -> Iterator[str]:
    """Yield the CIDR ranges that a resource admits."""
    inputs = subject.inputs
    rules: list[Any] = []
    if subject.kind in ("SecurityGroup", "DefaultSecurityGroup"):
        rules = as_list(inputs.get("ingress"))
    elif subject.kind == "SecurityGroupIngressRule" or (
        subject.kind == "SecurityGroupRule" and inputs.get("type") == "ingress"
    ):
        rules = [inputs]
    for rule in rules:
        if not isinstance(rule, Mapping):
            continue  # unknown in a preview
        yield from (str(rule[key]) for key in ("cidrIpv4", "cidrIpv6") if rule.get(key))
        for key in ("cidrBlocks", "ipv6CidrBlocks"):
            yield from (str(cidr) for cidr in as_list(rule.get(key)))


def _function_url(inputs: Mapping[str, Any]) -> Iterator[str]:
    if inputs.get("authorizationType") not in ("AWS_IAM", UNKNOWN):
        yield f"authorizationType is {inputs.get('authorizationType')}, allowed: AWS_IAM"


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
    is_bound = any(inputs.get(key) for key in bounds) or inputs.get("functionUrlAuthType") == "AWS_IAM"
    if inputs.get("principal") == "*" and not is_bound:
        yield f"principal *, allowed: a principal, or one of {', '.join(bounds)}"


def _public_access_block(inputs: Mapping[str, Any]) -> Iterator[str]:
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if inputs.get(key) not in (True, "true", UNKNOWN):
            yield f"{key} is {inputs.get(key) or 'not set'}, allowed: true"


def _bucket_acl(inputs: Mapping[str, Any]) -> Iterator[str]:
    acl = str(inputs.get("acl") or "")
    if acl.startswith("public-") or acl == "authenticated-read":
        yield f"acl is {acl}, allowed: private"


_ENDPOINTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "AccountPublicAccessBlock": _public_access_block,
    "Bucket": _bucket_acl,
    "BucketAcl": _bucket_acl,
    "BucketPublicAccessBlock": _public_access_block,
    "Cluster": _cluster,
    "FunctionUrl": _function_url,
    "LayerVersionPermission": _permission,
    "Permission": _permission,
}
"""The check of each resource kind that can be reached from the internet by itself."""


def _public_endpoints(subject: Subject, _settings: RuleSettings, _facts: ExternalFacts) -> Iterator[str]:
    if subject.kind and subject.inputs.get("publiclyAccessible") not in (None, False, "false", UNKNOWN):
        yield "publiclyAccessible is true, allowed: false"
    if subject.kind in _ENDPOINTS:
        yield from _ENDPOINTS[subject.kind](subject.inputs)


RULES: Final = (
    PolicyRule(
        "no-ingress-from-anywhere", "No security group admits the whole internet.", "mandatory", _open_to_all
    ),
    PolicyRule(
        "no-ingress-in-total",
        "The rules of a security group do not admit the internet in parts.",
        "mandatory",
        check_stack=_open_in_total,
    ),
    PolicyRule(
        "no-public-endpoints",
        "Functions, clusters, brokers, databases and buckets are not public.",
        "mandatory",
        _public_endpoints,
    ),
)

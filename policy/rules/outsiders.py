"""Evaluates conditions and addresses: who still meets them, and whether they narrow what an action reaches.

A statement is evaluated for requests of an anonymous caller, of a role in a foreign account, and of any
repository's job: a condition bounds it only if none of these can meet it. Sources: IAM user guide, "Condition
operators" and "Multivalued context keys"; S3 user guide, "The meaning of public"; EFS user guide,
"Resource-based policies".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from policy.rules.model import UNKNOWN, as_list

_OF_ACCOUNT: Final = frozenset(
    {
        *("aws:principalaccount", "aws:sourceaccount", "aws:sourceowner", "kms:calleraccount"),
        *("s3:dataaccesspointaccount", "aws:vpceaccount"),
    }
)
_OF_ARN: Final = frozenset(
    {
        *("aws:principalarn", "aws:sourcearn", "aws:sourcevpcarn", "lambda:sourcefunctionarn"),
        "s3:dataaccesspointarn",
    }
)
_OF_NAME: Final = frozenset(
    {
        *("aws:principalorgid", "aws:principalorgpaths", "aws:sourceorgid", "aws:sourcevpc"),
        *("aws:sourcevpce", "aws:userid", "aws:vpceorgid"),
    }
)
MAX_PUBLIC_V4: Final = 2**24
"""Public IPv4 addresses that may be admitted together: as many as a /8 has."""
MAX_PUBLIC_V6: Final = 2**96
"""IPv6 addresses that may be admitted together: as many as a /32 has."""
_PRIVATE: Final = tuple(
    ipaddress.IPv4Network(cidr)
    for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
)
_PRIVATE_V6: Final = ipaddress.IPv6Network("fc00::/7")
_POSITIVE: Final = re.compile(
    r"(?:ForAnyValue:)?(StringEquals(IgnoreCase)?|StringLike|Arn(Equals|Like)|IpAddress|Bool)"
)
"""Operators that a request without the key does not meet, unlike ``…IfExists``, ``ForAllValues``, ``Null``
and negations."""
_TAGS: Final = ("resourcetag/", "requesttag/", "createaction")
_KEYS_OF_RESOURCES: Final = ("leadingkeys", "accesspointarn", "sourceinstancearn", "s3:prefix", "volumearn")

_ID: Final = re.compile(r"(?:vpce-|vpc-|o-|)[^*?/-]{8,}")
"""A whole id before the first wildcard: of an organisation, a VPC, an endpoint, a user or a role."""
_NAMED: Final = re.compile(r"[^*?/:]")


def tests(condition: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Yield operator, key (in lower case) and values of what a request without the key does not meet."""
    for operator, by_key in condition.items() if isinstance(condition, Mapping) else ():
        if _POSITIVE.fullmatch(operator) and isinstance(by_key, Mapping):
            name = operator.rpartition(":")[2]
            for key, values in by_key.items():
                yield name, key.lower(), [UNKNOWN] if values == UNKNOWN else [str(v) for v in as_list(values)]


def shuts_out(condition: Any) -> bool:
    """Return whether neither an anonymous caller nor a foreign account meets a condition."""
    if condition == UNKNOWN:
        return True
    return any(
        values
        and (
            operator == "IpAddress" and (UNKNOWN in values or not too_public(values))
            if key == "aws:sourceip"
            else all(_is_bound(operator, key, value) for value in values)
        )
        for operator, key, values in tests(condition)
    )


def _is_bound(operator: str, key: str, value: str) -> bool:
    if value == UNKNOWN or UNKNOWN in value:
        return True
    is_pattern = operator in ("StringLike", "ArnLike", "ArnEquals")
    if key in _OF_ACCOUNT:
        return re.fullmatch(r"\d{12}", value) is not None
    if key in _OF_ARN:
        return not re.search(r"[*?]", value) or (is_pattern and _has_owner(value))
    if key in _OF_NAME:
        return not re.match(r"[*?]", value) and (not is_pattern or _ID.match(value) is not None)
    if key == "lambda:functionurlauthtype":
        return value == "AWS_IAM"
    # Only hosts with a network path to the mount target.
    return key == "elasticfilesystem:accessedviamounttarget" and value.lower() == "true"


def _has_owner(arn: str) -> bool:
    """Return whether an ARN pattern names an account, or of S3, whose ARNs have none, a bucket."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        return False
    return re.fullmatch(r"\d{12}", parts[4]) is not None or (
        # Anybody may own the bucket that a pattern also matches.
        parts[2] == "s3" and not parts[4] and re.fullmatch(r"[^*?/]{3,}(/.*)?", parts[5]) is not None
    )


def too_public(cidrs: Iterable[str]) -> list[str]:
    """Return the public ranges of several, if they have together more addresses than may be admitted."""
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
    is_too_public = addresses_v4 > MAX_PUBLIC_V4 or addresses_v6 > MAX_PUBLIC_V6
    return [str(network) for network in (*public_v4, *public_v6)] if is_too_public else []


def narrows_resources(condition: Any) -> bool:
    """Return whether a condition bounds the resources of an action, for one whose ARN is a pattern of all."""
    if condition == UNKNOWN:
        return True
    return any(
        (any(tag in key for tag in _TAGS) or key.endswith(_KEYS_OF_RESOURCES))
        and values
        and all(_NAMED.search(value) for value in values)
        for _, key, values in tests(condition)
    )


def any_job(statement: Mapping[str, Any]) -> str:
    """Return why a trust in an identity provider admits jobs of others; empty if it names whose."""
    principal = statement.get("Principal")
    providers = as_list(principal.get("Federated")) if isinstance(principal, Mapping) else []
    return _subjects(statement) if providers else ""


def _subjects(statement: Mapping[str, Any]) -> str:
    condition = statement.get("Condition")
    if condition == UNKNOWN:
        return ""
    ends = (":sub", "saml:sub", "saml:aud")
    subjects = [values for _, key, values in tests(condition) if key.endswith(ends)]
    if not subjects:
        return "trusts every subject; set StringEquals on the provider's sub"
    if wild := [value for values in subjects[:1] for value in values if re.search(r"[*?]", value)]:
        return f"trusts the subject {wild[0]}; use one without wildcards"
    return ""

"""What a change of an HTTP service's address means in a pull request: for callers, never for workers."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.workers import assess_preview
from gpu_spot.review.preview import EngineStep, Preview

TAGS = {"gpu-spot:group": "web"}
PROXIES = [{"key": "gpu-spot:proxy", "value": "web"}]
TARGET = EngineStep(
    "same",
    "aws:ssm/parameter:Parameter",
    "gpu-spot-dev-web-target",
    {"insecureValue": "4", "tags": TAGS},
    {"insecureValue": "4", "tags": TAGS},
)
GROUP, TEMPLATE = "aws:autoscaling/group:Group", "aws:ec2/launchTemplate:LaunchTemplate"
BALANCER, LISTENER, TARGETS = (
    f"aws:lb/{kind}" for kind in ("loadBalancer:LoadBalancer", "listener:Listener", "targetGroup:TargetGroup")
)


def effects(
    op: str, type_: str, name: str, tags: Any = TAGS, **change: tuple[Any, Any]
) -> list[tuple[str, Severity]]:
    old, new = ({"tags": tags, **{key: values[side] for key, values in change.items()}} for side in (0, 1))
    if op == "create":
        old = {}
    step = EngineStep(
        op,
        type_,
        f"gpu-spot-dev-web-{name}",
        old,
        {} if op == "delete" else new,
        tuple(change),
        tuple(change),
    )
    return [
        (effect.words, effect.severity) for effect in assess_preview(Preview("dev", (TARGET, step))).effects
    ]


@pytest.mark.parametrize(
    ("op", "type_", "name", "change", "says"),
    [
        ("replace", BALANCER, "http", {"internal": (True, False)}, "a new one has another name"),
        ("delete", BALANCER, "http", {}, "callers of its name fail"),
        ("update", BALANCER, "http", {"idleTimeout": (130, 60)}, "requests in flight may be cut"),
        ("update", BALANCER, "http", {"subnets": (["a", "b"], ["a", "c"])}, "requests in flight may be cut"),
        ("replace", TARGETS, "http", {"protocolVersion": ("HTTP1", "HTTP2")}, "503 until the proxies"),
        ("replace", LISTENER, "http", {"port": (80, 443)}, "callers fail until there is another"),
        ("delete", "aws:route53/record:Record", "http", {}, "callers of the name fail"),
        (
            "delete",
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            "http-x-443",
            {},
            "lose access",
        ),
        ("delete", "aws:s3/bucket:Bucket", "access-logs", {}, "with the access logs in it"),
        ("delete", "aws:eks/accessEntry:AccessEntry", "proxies-access", {}, "proxies do not see new pods"),
    ],
)
def test_callers_are_named_and_no_worker_ends(
    op: str, type_: str, name: str, change: dict[str, tuple[Any, Any]], says: str
) -> None:
    [(words, severity)] = effects(op, type_, name, **change)
    assert says in words
    assert severity is Severity.WATCH


@pytest.mark.parametrize(
    ("type_", "change"),
    [
        (BALANCER, {"subnets": (["a", "b"], ["a", "b", "c"])}),
        (LISTENER, {"certificateArn": ("a", "b")}),
        (TARGETS, {"deregistrationDelay": (300, 600)}),
    ],
)
def test_what_breaks_no_request_is_not_mentioned(type_: str, change: dict[str, tuple[Any, Any]]) -> None:
    assert effects("update", type_, "http", **change) == []


def test_proxies_are_replaced_one_by_one() -> None:
    [(words, severity)] = effects(
        "update", TEMPLATE, "proxies", {"gpu-spot:proxy": "web"}, userData=("a", "b")
    )
    assert "proxies are replaced" in words
    assert severity is Severity.LATER
    [(words, _)] = effects("update", GROUP, "proxies", PROXIES, mixedInstancesPolicy=({}, {"a": 1}))
    assert "proxies are replaced" in words
    [(words, severity)] = effects("update", GROUP, "proxies", PROXIES, maxSize=(6, 4), desiredCapacity=(3, 2))
    assert (severity, "another number" in words) == (Severity.LATER, True)
    [(words, severity)] = effects("delete", GROUP, "proxies", PROXIES)
    assert (severity, "callers get 503" in words) == (Severity.WATCH, True)


def test_an_unknown_input_of_proxies_is_not_known() -> None:
    [(_, severity)] = effects("update", GROUP, "proxies", PROXIES, terminationPolicies=([], ["a"]))
    assert severity is Severity.UNKNOWN


@pytest.mark.parametrize("type_", [BALANCER, LISTENER, TARGETS, "aws:route53/record:Record", GROUP, TEMPLATE])
def test_a_new_address_ends_nothing(type_: str) -> None:
    tags = {"gpu-spot:proxy": "web"} if type_ == TEMPLATE else PROXIES if type_ == GROUP else TAGS
    assert effects("create", type_, "http", tags) == []

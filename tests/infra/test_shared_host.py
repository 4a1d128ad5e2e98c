"""Resources of a shared host: the tenants' list, ports and permissions."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
import yaml

from infra.settings import load_settings
from tests.iam import Request, allows
from tests.infra.declared import ROOT, Run, edited_stack, run
from userdata.agent.tenants import codec

SHARED = ROOT / "stacks" / "Pulumi.shared.yaml"
TENANTS = ("vision", "speech", "notes")
TAGS = "ssm:resourceTag"


@cache
def shared() -> Run:
    return run("known", SHARED, "shared")


def policy(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shared().the(kind, name)["policy"])
    return found


def test_the_list_is_in_the_agents_bucket_and_not_in_user_data() -> None:
    [stored] = [one for name, one in shared().of("BucketObjectv2").items() if name.endswith("lab-tenants")]
    assert stored["key"] == codec.key_of("lab")
    assert [one.name for one in codec.decode(stored["content"])] == list(TENANTS)
    for side in ("primary", "fallback"):
        assert shared().agent(f"lab-{side}")["sharedHost"] == {
            "bucket": "gpu-spot-shared-agent-id",
            "jobTable": "gpu-spot-shared-jobs",
        }
        boot = shared().cloud_config(f"lab-{side}")
        assert not [name for name in TENANTS if name in boot]
        assert "gpu-spot-landlord.service" in boot


def test_a_changed_list_replaces_no_instance() -> None:
    def change(config: dict[str, Any]) -> None:
        tenants = config["gpu-spot:sharedHosts"][0]["tenants"]
        tenants[2] |= {"cpus": 8, "hostPort": 8010}
        tenants.append({**tenants[2], "name": "fourth", "uid": 2010, "hostPort": 8011})

    other = edited_stack(change, "shared")

    def inputs(of: Run) -> dict[tuple[str, str], Any]:
        return {(one["type"], one["name"]): one["inputs"] for one in of.declared if one["custom"]}

    before, after = inputs(shared()), inputs(other)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    kinds = {kind.rpartition(":")[2] for kind, _ in changed}
    assert kinds == {"BucketObjectv2", "SecurityGroupIngressRule", "Document", "Policy", "MetricAlarm"}


def test_ports_are_open_to_the_allowed_sources_only() -> None:
    group = "gpu-spot-shared-lab-ports-id"

    def rules(direction: str) -> list[dict[str, Any]]:
        found = shared().of(f"SecurityGroup{direction}Rule").values()
        return [one for one in found if one["securityGroupId"] == group]

    opened = [(int(one["fromPort"]), int(one["toPort"]), one["cidrIpv4"]) for one in rules("Ingress")]
    assert sorted(opened) == [(port, port, "10.30.0.0/16") for port in (8001, 8002, 8003)]
    assert not rules("Egress")
    for side in ("primary", "fallback"):
        groups = shared().the("LaunchTemplate", f"lab-{side}")["vpcSecurityGroupIds"]
        assert groups == ["gpu-spot-shared-workers-id", group]


def test_a_session_document_forwards_to_one_fixed_port() -> None:
    for name, port in zip(TENANTS, (8001, 8002, 8003), strict=True):
        document = shared().the("Document", f"lab-{name}")
        content = json.loads(document["content"])
        assert (document["documentType"], content["sessionType"]) == ("Session", "Port")
        assert content["properties"]["portNumber"] == str(port)
        assert content["properties"]["type"] == "LocalPortForwarding"
        assert list(content["parameters"]) == ["localPortNumber"]


def test_a_session_document_opens_a_shell_in_one_fixed_container() -> None:
    for name in TENANTS:
        document = shared().the("Document", f"lab-{name}.shell")
        content = json.loads(document["content"])
        assert (document["documentType"], content["sessionType"]) == ("Session", "InteractiveCommands")
        assert "parameters" not in content
        linux = content["properties"]["linux"]
        assert linux["runAsElevated"] is True
        # What follows the container's name runs in the container; no option before it widens it.
        assert linux["commands"] == f"exec docker exec --interactive --tty gpu-spot-tenant-{name} sh"


INSTANCE = "arn:aws:ec2:us-west-2:123456789012:instance/i-0123456789abcdef0"
SESSIONS = "arn:aws:ssm:us-west-2:123456789012:session"
CHECKED = {"ssm:SessionDocumentAccessCheck": ["true"]}


def user(tenant: str = "vision", host: str = "lab", stack: str = "shared") -> dict[str, list[str]]:
    """Return what AWS knows of a tenant's user."""
    return {"aws:PrincipalTag/gpu-spot:tenant": [f"{stack}/{host}/{tenant}"], "aws:userid": ["AROA1:ada"]}


def tags(host: str = "lab", stack: str = "shared") -> dict[str, list[str]]:
    """Return the tags of a host's instance, as they are in a request."""
    return {f"{TAGS}/gpu-spot:stack": [stack], f"{TAGS}/gpu-spot:group": [host]}


def document_of(policy_document: dict[str, Any]) -> str:
    [own] = [one["Resource"][0] for one in policy_document["Statement"] if one["Sid"] == "StartDocument"]
    return str(own)


def starts(
    policies: list[dict[str, Any]],
    principal: dict[str, list[str]],
    document: str,
    target: dict[str, list[str]] | None = None,
) -> bool:
    """Return whether a session starts: AWS asks for the instance and for the document."""
    on_host = {**principal, **(tags() if target is None else target), **CHECKED}
    return allows(policies, Request("ssm:StartSession", INSTANCE, on_host)) and allows(
        policies, Request("ssm:StartSession", document, {**principal, **CHECKED})
    )


def test_a_tenants_users_reach_their_own_port_and_shell_and_no_other() -> None:
    policies = {(name, kind): policy("Policy", f"lab-{name}{kind}") for name in TENANTS for kind in KINDS}
    documents = {key: document_of(found) for key, found in policies.items()}
    assert len({*documents.values()}) == len(TENANTS) * len(KINDS)
    for name in TENANTS:
        attached = [policies[name, kind] for kind in KINDS]
        reached = {key for key, one in documents.items() if starts(attached, user(name), one)}
        assert reached == {(name, kind) for kind in KINDS}
        # One of the policies allows its document only.
        for kind in KINDS:
            alone = {key for key, one in documents.items() if starts([policies[name, kind]], user(name), one)}
            assert alone == {(name, kind)}


KINDS = ("", ".shell")


@pytest.mark.parametrize(
    ("principal", "target"),
    [
        (user("speech"), tags()),
        (user(host="hall"), tags()),
        (user(stack="prod"), tags()),
        ({"aws:userid": ["AROA1:ada"]}, tags()),
        (user(), tags("hall")),
        (user(), tags(stack="prod")),
        (user(), {}),
    ],
)
def test_a_principal_without_the_tenants_tag_or_on_another_machine_reaches_nothing(
    principal: dict[str, list[str]], target: dict[str, list[str]]
) -> None:
    for kind in KINDS:
        own = policy("Policy", f"lab-vision{kind}")
        assert starts([own], user(), document_of(own))
        assert not starts([own], principal, document_of(own), target)


@pytest.mark.parametrize(
    "document",
    [
        *("AWS-StartPortForwardingSession", "AWS-StartPortForwardingSessionToRemoteHost"),
        *("AWS-StartInteractiveCommand", "AWS-StartSSHSession", "SSM-SessionManagerRunShell"),
    ],
)
def test_no_document_of_aws_can_be_started(document: str) -> None:
    every = [policy("Policy", f"lab-vision{kind}") for kind in KINDS]
    for account in ("", "123456789012"):
        assert not starts(every, user(), f"arn:aws:ssm:us-west-2:{account}:document/{document}")
    # A session without a document would be a shell of the host.
    unchecked = {**user(), **tags(), "ssm:SessionDocumentAccessCheck": ["false"]}
    assert not allows(every, Request("ssm:StartSession", INSTANCE, unchecked))


def test_a_user_with_tenants_on_two_hosts_cannot_use_the_document_of_one_on_the_other() -> None:
    def add(config: dict[str, Any]) -> None:
        hall = copy.deepcopy(config["gpu-spot:sharedHosts"][0])
        # Its port is that of another tenant on the first host, its name that of one.
        hall |= {"name": "hall", "tenants": [{**hall["tenants"][0], "name": "speech", "hostPort": 8003}]}
        config["gpu-spot:sharedHosts"].append(hall)

    both = edited_stack(add, "shared")

    def of(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(both.the("Policy", name)["policy"])
        return found

    for kind in KINDS:
        vision, speech = of(f"lab-vision{kind}"), of(f"hall-speech{kind}")
        for principal in (user("vision"), user("speech", host="hall")):
            assert not starts([vision, speech], principal, document_of(speech), tags())
            assert not starts([vision, speech], principal, document_of(vision), tags("hall"))
        assert starts([vision, speech], user("vision"), document_of(vision), tags())
        assert starts([vision, speech], user("speech", host="hall"), document_of(speech), tags("hall"))


def test_a_session_needs_a_channel_and_only_its_starter_ends_it() -> None:
    for kind in KINDS:
        own = policy("Policy", f"lab-vision{kind}")
        actions = {action for one in own["Statement"] for action in one["Action"]}
        channel, ends = "ssmmessages:OpenDataChannel", ("ssm:ResumeSession", "ssm:TerminateSession")
        assert actions == {"ssm:StartSession", channel, *ends}
        for action in (channel, *ends):
            assert allows([own], Request(action, f"{SESSIONS}/AROA1:ada-0123", user()))
            assert not allows([own], Request(action, f"{SESSIONS}/AROA1:bo-0123", user()))
        assert not allows([own], Request(channel, f"{SESSIONS}/AROA1:ada-0123", user("speech")))


def test_the_outputs_name_what_a_tenants_users_need() -> None:
    access = shared().exports["sharedHosts"]["lab"]
    assert {name: one["principalTag"] for name, one in access.items()} == {
        name: f"shared/lab/{name}" for name in TENANTS
    }
    for one in access.values():
        assert {*one} == {*("principalTag", "document", "policy", "port", "shellDocument", "shellPolicy")}


@pytest.mark.parametrize(
    ("action", "resource", "context", "allowed"),
    [
        ("s3:GetObject", "{bucket}/hosts/lab/tenants.json", {}, True),
        ("s3:GetObject", "{bucket}/hosts/other/tenants.json", {}, False),
        ("ec2:AttachVolume", "volume/vol-0", {"aws:ResourceTag/gpu-spot:job": ["lab-vision"]}, True),
        ("ec2:AttachVolume", "volume/vol-0", {"aws:ResourceTag/gpu-spot:job": ["resnet"]}, False),
        ("ec2:AttachVolume", "volume/vol-0", {"aws:ResourceTag/gpu-spot:job": ["lab"]}, False),
        ("ec2:DeleteSnapshot", "snapshot", {"aws:ResourceTag/gpu-spot:job": ["lab-new"]}, True),
        ("ec2:DeleteSnapshot", "snapshot", {"aws:ResourceTag/gpu-spot:job": ["laboratory"]}, False),
        ("dynamodb:UpdateItem", "jobs", {"dynamodb:LeadingKeys": ["lab-vision"]}, True),
        ("dynamodb:UpdateItem", "jobs", {"dynamodb:LeadingKeys": ["resnet"]}, False),
    ],
)
def test_the_host_may_move_its_tenants_volumes_and_no_others(
    action: str, resource: str, context: dict[str, list[str]], allowed: bool
) -> None:
    role = policy("RolePolicy", "lab-instance")
    place = {
        "volume/vol-0": "arn:aws:ec2:us-west-2:123456789012:volume/vol-0",
        "snapshot": "arn:aws:ec2:us-west-2::snapshot/snap-0",
        "jobs": "arn:aws:dynamodb:us-west-2:123456789012:table/gpu-spot-shared-jobs",
    }.get(resource, resource.format(bucket="arn:aws:s3:::gpu-spot-shared-agent-id"))
    of_stack = {"aws:ResourceTag/gpu-spot:stack": ["shared"]} if action.startswith("ec2") else {}
    assert allows([role], Request(action, place, context | of_stack)) == allowed


def test_the_controllers_configuration_has_one_slot_with_break_before_make() -> None:
    config = json.loads(shared().the("Parameter", "lab-config")["insecureValue"])
    assert config["breakBeforeMake"] is True
    assert config["byZone"] is True
    assert set(config["slots"].values()) == {1}
    assert shared().the("Parameter", "lab-target")["insecureValue"] == "1"


def test_a_host_has_an_alarm_for_restarts_and_each_tenant_one_for_waiting() -> None:
    alarms = shared().of("MetricAlarm")
    of_host = {"group": "lab", "stack": "shared"}
    assert alarms["lab-restarting"]["dimensions"] == of_host
    for name in TENANTS:
        assert alarms[f"lab-{name}-waiting"]["dimensions"] == {**of_host, "tenant": name}


def test_memory_under_ten_datasets_is_warned_of() -> None:
    raw = yaml.safe_load(SHARED.read_text("utf-8"))["config"]
    assert list(load_settings(raw).warnings()) == []
    raw["gpu-spot:sharedHosts"][0]["tenants"][0]["datasetGiB"] = 9
    [warning] = load_settings(raw).warnings()
    assert warning.startswith(
        "gpu-spot:sharedHosts[0].tenants[0].memoryGiB: 80 for a dataset of 9 GiB: below 90"
    )


def test_a_host_may_read_its_tenants_secrets_and_no_other() -> None:
    secrets = {f"sharedHosts[0].tenants[{number}].secret": f"lab/keys-{number}" for number in range(2)}
    shared_one = {f"sharedHosts[0].tenants[{number}].registrySecret": "lab/registry" for number in range(2)}
    role = edited_stack(secrets | shared_one, "shared")
    [stored] = [one for name, one in role.of("BucketObjectv2").items() if name.endswith("lab-tenants")]
    assert [one.secret for one in codec.decode(stored["content"])] == ["lab/keys-0", "lab/keys-1", None]
    policies = [json.loads(one["policy"]) for name, one in role.of("RolePolicy").items() if "lab" in name]
    arn = "arn:aws:secretsmanager:us-west-2:123456789012:secret"
    for name, is_allowed in {"keys-0": True, "keys-1": True, "registry": True, "keys-2": False}.items():
        request = Request("secretsmanager:GetSecretValue", f"{arn}:lab/{name}-a1B2c3", {})
        assert allows(policies, request) == is_allowed, name

"""Brokers that AWS refuses are refused, and a secret's labels move as AWS moves them."""

from __future__ import annotations

import re
import socket
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError

from pulumi_on_moto import Deployment

NUMBERS = count()
PASSWORD = "0123456789ab"


def broker(**changes: Any) -> dict[str, Any]:
    return {
        "BrokerName": f"broker-{next(NUMBERS)}",
        "EngineType": "RABBITMQ",
        "EngineVersion": "4.2",
        "HostInstanceType": "mq.m7g.large",
        "DeploymentMode": "SINGLE_INSTANCE",
        "AutoMinorVersionUpgrade": True,
        "PubliclyAccessible": False,
        "SubnetIds": ["subnet-1"],
        "SecurityGroups": ["sg-1"],
        "Users": [{"Username": "admin", "Password": PASSWORD}],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"EngineVersion": "3.12"}, "Invalid broker engine version [3.12] for RABBITMQ (valid: 4.2, 3.13)"),
        ({"AutoMinorVersionUpgrade": False}, "requires autoMinorVersionUpgrade set to true"),
        ({"Users": []}, "exactly one user"),
        ({"Users": [{"Username": name, "Password": PASSWORD} for name in ("a1", "b1")]}, "exactly one user"),
        ({"Users": [{"Username": "admin", "Password": "short"}]}, "password"),
        ({"Users": [{"Username": "admin", "Password": f"{PASSWORD}:"}]}, "password"),
        ({"SubnetIds": ["subnet-1", "subnet-2"]}, "exactly one subnet"),
        ({"DeploymentMode": "ACTIVE_STANDBY_MULTI_AZ"}, "ActiveMQ"),
        ({"BrokerName": "a broker"}, "[a broker] is invalid"),
        ({"BrokerName": "b" * 51}, "is invalid"),
        ({"PubliclyAccessible": True}, "take no security groups"),
    ],
)
def test_a_broker_that_aws_refuses_is_refused(
    deployment: Deployment, changes: dict[str, Any], says: str
) -> None:
    mq = deployment.clients("mq")
    with pytest.raises(ClientError, match=re.escape(says)) as caught:
        mq.create_broker(**broker(**changes))
    assert caught.value.response["Error"]["Code"] == "BadRequestException"


def test_a_name_is_taken_once(deployment: Deployment) -> None:
    mq, given = deployment.clients("mq"), broker()
    mq.create_broker(**given)
    with pytest.raises(ClientError, match="already exists"):
        mq.create_broker(**given)


def test_each_broker_is_reached_by_a_name_of_its_own_over_tls(deployment: Deployment) -> None:
    mq = deployment.clients("mq")
    found = []
    for mode in ("SINGLE_INSTANCE", "CLUSTER_MULTI_AZ"):
        made = mq.create_broker(**broker(DeploymentMode=mode))["BrokerId"]
        [instance] = mq.describe_broker(BrokerId=made)["BrokerInstances"]
        [endpoint] = instance["Endpoints"]
        assert re.fullmatch(r"amqps://b-\w+\.mq\.[a-z0-9-]+\.amazonaws\.com:5671", endpoint)
        found.append(endpoint)
        # Nobody answers, and nobody else is asked where it is.
        with pytest.raises(socket.gaierror, match="not known"):
            socket.getaddrinfo(endpoint.removeprefix("amqps://").partition(":")[0], 443)
    assert len(set(found)) == 2
    assert socket.getaddrinfo("127.0.0.1", 443)


def test_its_security_groups_stay(deployment: Deployment) -> None:
    mq = deployment.clients("mq")
    made = mq.create_broker(**broker())["BrokerId"]
    with pytest.raises(ClientError, match="Changing security groups is not supported"):
        mq.update_broker(BrokerId=made, SecurityGroups=["sg-2"])
    mq.update_broker(BrokerId=made, HostInstanceType="mq.m7g.xlarge")


def test_labels_move_one_by_one(deployment: Deployment) -> None:
    secrets = deployment.clients("secretsmanager")
    name = f"secret-{next(NUMBERS)}"
    secrets.create_secret(Name=name)

    def put(*labels: str) -> str:
        return str(
            secrets.put_secret_value(SecretId=name, SecretString="x", VersionStages=labels)["VersionId"]
        )

    def labels() -> dict[str, set[str]]:
        found = secrets.list_secret_version_ids(SecretId=name, IncludeDeprecated=True)["Versions"]
        return {one["VersionId"]: set(one.get("VersionStages", ())) for one in found}

    first = put("PASSWORD")
    assert labels() == {first: {"PASSWORD", "AWSCURRENT"}}  # the first always is
    second = put("AWSCURRENT", "URL")
    assert labels() == {first: {"PASSWORD", "AWSPREVIOUS"}, second: {"AWSCURRENT", "URL"}}
    third = put("AWSCURRENT", "URL")
    labels_now = labels()
    assert (labels_now[first], labels_now[third]) == ({"PASSWORD"}, {"AWSCURRENT", "URL"})
    assert labels_now.get(second, {"AWSPREVIOUS"}) == {"AWSPREVIOUS"}

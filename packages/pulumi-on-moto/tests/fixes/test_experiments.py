"""Experiments of FIS: who is interrupted, and what AWS refuses."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.fis.models import fis_backends

from pulumi_on_moto import sandbox
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.fixes.experiments import listen, seconds

REGION = "eu-west-1"


def role(clients: AwsClients, service: str = "fis.amazonaws.com") -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    made = clients("iam").create_role(
        RoleName=service.partition(".")[0],
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )
    return str(made["Role"]["Arn"])


def template(clients: AwsClients, role_arn: str, before: str = "PT2M", most: int = 2) -> str:
    made = clients("fis").create_experiment_template(
        clientToken=f"{role_arn}{before}{most}",
        description="takes some",
        roleArn=role_arn,
        stopConditions=[{"source": "none"}],
        targets={
            "some": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceTags": {"team": "a"},
                "selectionMode": f"COUNT({most})",
            }
        },
        actions={
            "take": {
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": {"durationBeforeInterruption": before},
                "targets": {"SpotInstances": "some"},
            }
        },
    )
    return str(made["experimentTemplate"]["id"])


def instance(clients: AwsClients, team: str, *, spot: bool) -> str:
    image = clients("ec2").describe_images()["Images"][0]["ImageId"]
    market: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": team}]}]
    made = clients("ec2").run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType="m5.large", TagSpecifications=tags, **market
    )
    return str(made["Instances"][0]["InstanceId"])


def test_so_many_spot_instances_with_the_tags_are_interrupted_and_no_others() -> None:
    interrupted_ids: list[str] = []
    with sandbox(REGION) as clients:
        listen(fis_backends[ACCOUNT][REGION], interrupted_ids.extend)
        ours = {instance(clients, "a", spot=True) for _ in range(3)}
        instance(clients, "a", spot=False)
        instance(clients, "b", spot=True)
        started = clients("fis").start_experiment(experimentTemplateId=template(clients, role(clients)))
    assert started["experiment"]["state"]["status"] != "failed"
    assert len(interrupted_ids) == 2
    assert set(interrupted_ids) < ours


def test_an_experiment_without_a_target_fails() -> None:
    with sandbox(REGION) as clients:
        instance(clients, "a", spot=False)
        made = template(clients, role(clients))
        started = clients("fis").start_experiment(experimentTemplateId=made)["experiment"]
        assert clients("fis").get_experiment(id=started["id"])["experiment"]["state"]["status"] == "failed"


def test_a_role_that_does_not_trust_fis_and_a_wrong_duration_are_refused() -> None:
    with sandbox(REGION) as clients:
        with pytest.raises(ClientError, match="does not trust"):
            template(clients, role(clients, "ec2.amazonaws.com"))
        trusted = role(clients)
        for before in ("PT1M", "PT119S", "PT15M1S", "PT1H", "2M", "PT"):
            with pytest.raises(ClientError, match=f"must be from PT2M to PT15M .ISO 8601., not '{before}'"):
                template(clients, trusted, before=before)
        for before in ("PT120S", "PT2M30S", "PT0H15M", "PT0.25H"):
            assert template(clients, trusted, before=before)


@pytest.mark.parametrize(
    ("duration", "length"),
    [
        ("PT2M", 120),
        ("PT120S", 120),
        ("PT1H30M", 5400),
        ("PT1H0M2.5S", 3602.5),
        ("PT2,5M", 150),
        ("P1D", 86_400),
        ("P1DT1S", 86_401),
        ("P2W", 1_209_600),
    ],
)
def test_a_duration_is_read_as_iso_8601_has_it(duration: str, length: float) -> None:
    assert seconds(duration) == length


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "2M",
        "P2M",
        "P1Y",
        "PT2",
        "PT2M3H",
        "PT2.5M3S",
        "-PT2M",
        "PT-2M",
        "pt2m",
        "P1W1D",
    ],
)
def test_what_is_no_duration_or_has_no_one_length_is_none(wrong: str) -> None:
    assert math.isnan(seconds(wrong))

"""Experiments of FIS: who is interrupted, and what AWS refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.fis.models import fis_backends

from pulumi_on_moto import sandbox
from pulumi_on_moto.fixes.experiments import listen
from pulumi_on_moto.sandbox import ACCOUNT, AwsClients

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
    heard: list[str] = []
    with sandbox(REGION) as clients:
        listen(fis_backends[ACCOUNT][REGION], heard.extend)
        ours = {instance(clients, "a", spot=True) for _ in range(3)}
        instance(clients, "a", spot=False)
        instance(clients, "b", spot=True)
        started = clients("fis").start_experiment(experimentTemplateId=template(clients, role(clients)))
    assert started["experiment"]["state"]["status"] != "failed"
    assert len(heard) == 2
    assert set(heard) < ours


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
        with pytest.raises(ClientError, match="allowed: PT2M to PT15M"):
            template(clients, role(clients), before="PT1M")

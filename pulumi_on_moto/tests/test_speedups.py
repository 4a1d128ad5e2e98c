"""What makes moto faster changes no answer, and does what it is there for."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest import mock

import boto3
import pytest
from botocore import loaders
from cryptography.hazmat.primitives.asymmetric import rsa
from moto import mock_aws
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.iam import models

from pulumi_on_moto import sandbox
from pulumi_on_moto.sandbox import ACCOUNT

REGION = "eu-west-1"


def shown(ec2: Any) -> list[Any]:
    """What moto has of its own: images without what it draws, and the number of snapshots."""
    images = ec2.describe_images()["Images"]
    for image in images:
        for mapping in image["BlockDeviceMappings"]:
            mapping["Ebs"].pop("SnapshotId")
        image.pop("CreationDate")
    return [images, len(ec2.describe_snapshots()["Snapshots"])]


def test_images_and_their_snapshots_are_motos() -> None:
    with mock_aws():
        plain = shown(boto3.client("ec2", region_name=REGION))
    with sandbox(REGION) as clients:
        assert shown(clients("ec2")) == plain
    assert len(plain[0]) > 1_000


@pytest.mark.parametrize("read", ["describe_images", "describe_snapshots"])
def test_images_are_made_when_they_are_looked_for_and_once(read: str) -> None:
    with mock.patch.object(Ami, "__init__", autospec=True, side_effect=Ami.__init__) as made:
        with sandbox(REGION) as clients:
            clients("ec2").describe_vpcs()
            assert made.call_count == 0
            getattr(clients("ec2"), read)()
            assert made.call_count == len(ec2_backends[ACCOUNT][REGION].amis) > 0
            once = made.call_count
            getattr(clients("ec2"), read)(MaxResults=5)
        assert made.call_count == once


def test_an_image_is_taken_away_and_comes_with_the_next_sandbox() -> None:
    for _ in range(2):
        with sandbox(REGION) as clients:
            images = clients("ec2").describe_images()["Images"]
            clients("ec2").deregister_image(ImageId=images[0]["ImageId"])
            assert len(clients("ec2").describe_images()["Images"]) == len(images) - 1


def test_a_key_is_of_the_account_that_made_it_and_no_partition_is_made_to_know_it() -> None:
    with sandbox(REGION) as clients:
        other = models.iam_backends["210987654321"]["aws-cn"]
        other.create_user(REGION, "a")
        key = other.create_access_key("a")
        clients("iam").list_roles()
        assert models.get_account_id_from(key.access_key_id) == "210987654321"
        assert models.get_account_id_from("AKIAEXAMPLE") == ACCOUNT
        assert list(models.iam_backends[ACCOUNT]) == ["aws"]


def test_a_model_is_looked_for_and_read_once() -> None:
    with sandbox(REGION):
        first = boto3.session.Session(region_name=REGION)
        first.client("mediastore")
        with (
            mock.patch.object(json, "loads", side_effect=AssertionError("read again")),
            mock.patch.object(os, "listdir", side_effect=os.listdir) as listed,
        ):
            second = boto3.session.Session(region_name=REGION)
            second.client("mediastore")
        assert listed.call_count < 10  # of some 400 services
        assert second.get_available_services() == first.get_available_services()
        assert len(first.get_available_services()) > 300
    assert loaders.JSONFileLoader().load_file("/nowhere") is None


def test_a_private_key_is_made_when_something_is_signed() -> None:
    with mock.patch.object(rsa, "generate_private_key", side_effect=rsa.generate_private_key) as made:
        with sandbox(REGION) as clients:
            clients("kms").create_key()
            assert made.call_count == 0
            usage = {"KeyUsage": "SIGN_VERIFY", "KeySpec": "RSA_2048"}
            key = clients("kms").create_key(**usage)["KeyMetadata"]["KeyId"]
            text = {"KeyId": key, "Message": b"a", "SigningAlgorithm": "RSASSA_PSS_SHA_256"}
            signature = clients("kms").sign(**text)["Signature"]
            assert clients("kms").verify(**text, Signature=signature)["SignatureValid"]
        assert made.call_count == 1


def test_tags_of_a_resource_are_found_as_moto_finds_them_without_a_search() -> None:
    with sandbox(REGION) as clients:
        ec2 = clients("ec2")
        tags = [{"Key": "b", "Value": "2"}, {"Key": "a", "Value": "1"}]
        made = {"ResourceType": "volume", "Tags": tags}
        volume = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=[made])[
            "VolumeId"
        ]
        ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1)
        backend = ec2_backends[ACCOUNT][REGION]
        assert backend.volumes[volume].get_tags() == backend.describe_tags({"resource-id": [volume]})
        with mock.patch.object(backend, "describe_tags", side_effect=AssertionError("searched")):
            [found] = ec2.describe_volumes(Filters=[{"Name": "tag:a", "Values": ["1"]}])["Volumes"]
        assert (found["VolumeId"], found["Tags"]) == (volume, tags)
        assert len(backend.volumes) == 2

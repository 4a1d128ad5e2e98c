"""What makes moto faster changes no answer, and does what it is there for."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
from typing import Any, Final
from unittest import mock

import boto3
import pytest
from botocore import loaders, utils
from botocore.client import ClientCreator
from moto import mock_aws
from moto.dynamodb.models.table import Table
from moto.ec2.models import ec2_backends, tags
from moto.ec2.models.amis import Ami
from moto.iam import models
from moto.moto_api._internal import mock_random
from moto.sqs.models import Queue

from pulumi_on_moto import sandbox
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.fixes import Patch
from pulumi_on_moto.fixes.speedups.clients import METHODS_OF_CLIENTS, TIMESTAMPS
from pulumi_on_moto.fixes.speedups.lookups import METHODS, RETENTION, TAGS
from pulumi_on_moto.running.clock import simulated

REGION = "eu-west-1"
SAME: Final = (METHODS_OF_CLIENTS, METHODS, RETENTION, TAGS, TIMESTAMPS)
ORIGINALS: Final = {patch[:2]: getattr(*patch[:2]) for patch in SAME}


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


def answers(*without: Patch) -> list[bytes]:
    """What moto says over the wire, in XML of two kinds and JSON, errors too; ``without`` some speed-ups."""
    bodies: list[bytes] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(simulated(1_767_571_200.0))
        clients = stack.enter_context(sandbox(REGION))
        for patch in without:
            stack.enter_context(mock.patch.object(patch[0], patch[1], ORIGINALS[patch[:2]]))
        ec2, groups, table = clients("ec2"), clients("autoscaling"), clients("dynamodb")
        image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        ec2.describe_subnets()
        mock_random.seed(0)  # what moto has of its own is drawn in no fixed order
        for client in (ec2, groups, table):
            client.meta.events.register(
                "before-parse.*", lambda response_dict, **_: bodies.append(response_dict["body"])
            )
        tags = [{"Key": "a", "Value": "<b> & \"c\" 'd' é"}, {"Key": "empty", "Value": ""}]
        made = {"ResourceType": "instance", "Tags": tags}
        kind = {"ImageId": image, "InstanceType": "g6.xlarge"}
        ec2.run_instances(**kind, MinCount=2, MaxCount=2, TagSpecifications=[made])
        [group, *_] = ec2.describe_instances()["Reservations"]
        ec2.describe_instances(Filters=[{"Name": "tag:a", "Values": ["<b>*"]}])
        ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [group["Instances"][0]["InstanceId"]]}])
        ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": ["i-*"]}])
        ec2.create_launch_template(LaunchTemplateName="made", LaunchTemplateData=kind)
        ec2.describe_launch_template_versions(LaunchTemplateName="made")
        with pytest.raises(ec2.exceptions.ClientError):
            ec2.describe_instances(InstanceIds=["i-1234567890abcdef0"])
        template, zones = {"LaunchTemplateName": "made"}, [f"{REGION}a", f"{REGION}b"]
        groups.create_auto_scaling_group(
            AutoScalingGroupName="g", MinSize=1, MaxSize=2, LaunchTemplate=template, AvailabilityZones=zones
        )
        groups.describe_auto_scaling_groups()
        groups.describe_scaling_activities()
        table.create_table(
            TableName="t",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        )
        item = {"k": {"S": "a"}, "b": {"B": b"\x00\xff"}, "m": {"M": {"n": {"L": [{"N": "1"}]}}}}
        table.put_item(TableName="t", Item=item)
        assert table.get_item(TableName="t", Key={"k": {"S": "a"}})["Item"] == item
    return [re.sub(rb"[0-9a-f]{8}-[-0-9a-f]{27}|(?<=-)[0-9a-f]{17}", b"drawn", one) for one in bodies]


def test_what_is_said_over_the_wire_is_the_same_letter_by_letter() -> None:
    plain = answers(*SAME)
    assert len(plain) == 14
    assert plain[2].count(b"<instanceId>") == 2
    assert plain[3].count(b"<key>") == 2
    assert plain[4].count(b"<key>") == 4
    assert answers() == plain


def test_what_a_model_has_is_read_once() -> None:
    answers()
    with mock.patch.object(inspect, "getmembers", side_effect=AssertionError("again")):
        answers()


def test_tags_of_one_resource_are_looked_up_without_a_pattern() -> None:
    with sandbox(REGION) as clients:
        ec2 = clients("ec2")
        [volume, other] = (
            ec2.create_volume(
                AvailabilityZone=f"{REGION}a",
                Size=1,
                TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": value}]}],
            )["VolumeId"]
            for value in "bc"
        )
        with mock.patch.object(tags, "simple_aws_filter_to_re", side_effect=AssertionError("a pattern")):
            found = ec2.describe_volumes(Filters=[{"Name": "tag:a", "Values": ["b"]}])["Volumes"]
            assert [one["VolumeId"] for one in found] == [volume]
            assert ec2.describe_volumes(VolumeIds=[other])["Volumes"][0]["Tags"] == [
                {"Key": "a", "Value": "c"}
            ]
            ec2.delete_tags(Resources=[other], Tags=[{"Key": "a"}])
            assert "Tags" not in ec2.describe_volumes(VolumeIds=[other])["Volumes"][0]
            vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
            assert ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [vpc]}])["Tags"] == []


@pytest.mark.parametrize(
    "written",
    [
        "2026-01-05T00:00:00Z",
        "2026-01-05T00:00:00.000Z",
        "2026-02-28T23:59:59.123456Z",
        "2026-01-05T00:00:00.1Z",
        "2026-01-05T00:00:00+02:00",
        "Mon, 05 Jan 2026 00:00:00 GMT",
        "1767571200",
        1767571200,
    ],
)
def test_a_time_is_read_as_botocore_reads_it(written: Any) -> None:
    plain = utils.parse_timestamp(written)
    with sandbox(REGION):
        read = utils.parse_timestamp(written)
    assert (read, read.utcoffset()) == (plain, plain.utcoffset())


def test_a_time_that_is_none_is_an_error_and_motos_format_needs_no_parser() -> None:
    with sandbox(REGION), mock.patch.object(utils.dateutil.parser, "parse", side_effect=ValueError("x")):
        utils.parse_timestamp("2026-01-05T00:00:00.000Z")
        for wrong in ("2026-01-05T00:00:00.1Z", "2026-02-30T00:00:00Z"):
            with pytest.raises(ValueError):  # noqa: PT011
                utils.parse_timestamp(wrong)


def requested(*without: Patch) -> list[tuple[str, str, str]]:
    """The headers that a client of each kind sends, and what it sends."""
    sent: list[tuple[str, str, str]] = []
    with sandbox(REGION), contextlib.ExitStack() as stack:
        for patch in without:
            stack.enter_context(mock.patch.object(patch[0], patch[1], ORIGINALS[patch[:2]]))
        for service, read in (("ec2", "describe_vpcs"), ("sqs", "list_queues"), ("dynamodb", "list_tables")):
            client = boto3.session.Session(region_name=REGION).client(service)
            client.meta.events.register(
                "before-send.*",
                lambda request, **_: sent.append(
                    (request.url, request.headers["User-Agent"], str(request.body))
                ),
            )
            getattr(client, read)()
    return sent


def test_a_client_made_again_sends_the_same_and_its_methods_are_made_once() -> None:
    plain = requested(METHODS_OF_CLIENTS)
    assert len(plain) == 3
    assert requested() == plain
    again = AssertionError("made again")
    with mock.patch.object(ClientCreator, "_create_api_method", side_effect=again):
        assert requested() == plain
    with sandbox(REGION):
        first, second = (boto3.session.Session(region_name=REGION).client("sqs") for _ in range(2))
        assert first.list_queues.__self__ is first
        with pytest.raises(TypeError, match=r"list_queues\(\) only accepts keyword arguments"):
            second.list_queues("a")


def test_a_message_is_received_until_its_retention_is_over() -> None:
    with simulated(1_767_571_200.0) as clock, sandbox(REGION) as clients:
        sqs = clients("sqs")
        url = sqs.create_queue(QueueName="q", Attributes={"MessageRetentionPeriod": "3600"})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="a")
        with mock.patch.object(Queue, "attributes", side_effect=AssertionError("all attributes")):
            for moment, messages in ((3_599, 1), (3_600, 0)):
                clock.set(1_767_571_200.0 + moment)
                received = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0).get("Messages", [])
                assert len(received) == messages


def table(dynamodb: Any, name: str) -> None:
    keys = [("k", "HASH", "S"), ("n", "RANGE", "N")]
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind, _ in keys],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": of} for key, _, of in keys],
    )


def row(number: int, text: str = "") -> dict[str, Any]:
    return {"k": {"S": "a"}, "n": {"N": str(number)}, **({"text": {"S": text}} if text else {})}


def test_rows_are_read_again_after_each_way_to_write_them_and_no_sooner() -> None:
    key = row(1)
    put = {"TableName": "a", "Item": row(1, "put")}
    update = {
        "TableName": "a",
        "Key": key,
        "UpdateExpression": "SET #t = :t",
        "ExpressionAttributeNames": {"#t": "text"},
        "ExpressionAttributeValues": {":t": {"S": "updated"}},
    }
    items = {"b": row(2), "a": row(1, "batch")}
    batch = {"RequestItems": {name: [{"PutRequest": {"Item": item}}] for name, item in items.items()}}
    transaction = {"TransactItems": [{"Put": {"TableName": "a", "Item": row(1, "transaction")}}]}
    with sandbox(REGION) as clients:
        dynamodb = clients("dynamodb")
        table(dynamodb, "a")
        table(dynamodb, "b")

        def read() -> list[str]:
            where = {"KeyConditionExpression": "k = :k", "ExpressionAttributeValues": {":k": {"S": "a"}}}
            ways = (
                [dynamodb.get_item(TableName="a", Key=key).get("Item")],
                dynamodb.query(TableName="a", **where)["Items"],
                dynamodb.scan(TableName="a")["Items"],
            )
            [rows] = {json.dumps(found) if found != [None] else "[]" for found in ways}
            return [load["text"]["S"] for load in json.loads(rows)]

        assert read() == []
        for write, given, then in (
            (dynamodb.put_item, put, ["put"]),
            (dynamodb.update_item, update, ["updated"]),
            (dynamodb.batch_write_item, batch, ["batch"]),
            (dynamodb.transact_write_items, transaction, ["transaction"]),
            (dynamodb.delete_item, {"TableName": "a", "Key": key}, []),
        ):
            write(**given)
            with mock.patch.object(Table, "query", autospec=True, side_effect=Table.query) as asked:
                assert read() == then
                once = asked.call_count
                dynamodb.put_item(TableName="b", Item=row(3))
                assert read() == then
            assert asked.call_count == once > 0
    with sandbox(REGION) as clients, pytest.raises(clients("dynamodb").exceptions.ResourceNotFoundException):
        clients("dynamodb").get_item(TableName="a", Key=key)

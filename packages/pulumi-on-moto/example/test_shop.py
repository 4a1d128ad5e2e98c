"""Deploys the shop, lets an order come in, and looks at what the functions did."""

from pathlib import Path

import pytest

from pulumi_on_moto import Change, Deployment, StackConfig, changes, deliver, invoke, load

HERE = Path(__file__).parent
PLACED = {"source": "shop", "detail-type": "Order placed", "detail": {"id": "7", "customer": "Ada"}}


@pytest.fixture(scope="session")
def pulumi_stack() -> StackConfig:
    return load(HERE, "dev")


def test_an_order_is_stored_and_gets_its_receipt(pulumi_deployment: Deployment) -> None:
    shop = pulumi_deployment
    order, receipt = deliver(shop, PLACED)
    assert (order.error, order.log) == ("", ("kept 7",))
    assert (receipt.error, receipt.messages) == ("", 1)
    [item] = shop.clients("dynamodb").scan(TableName=shop.outputs["orders"])["Items"]
    assert item["customer"] == {"S": "Ada"}
    written = shop.clients("s3").get_object(Bucket=shop.outputs["receipts"], Key="7.txt")
    assert written["Body"].read() == b"Ada ordered 7\n"


def test_other_events_wake_nobody(pulumi_deployment: Deployment) -> None:
    assert deliver(pulumi_deployment, {**PLACED, "detail-type": "Order cancelled"}) == ()


def test_a_broken_order_is_reported(pulumi_deployment: Deployment) -> None:
    assert invoke(pulumi_deployment, "keep", {"detail": {}}).error == "KeyError: 'id'"


def test_up_again_would_change_the_log_alone(pulumi_deployment: Deployment) -> None:
    assert changes(pulumi_deployment, load(HERE, "dev")) == ()
    found = changes(pulumi_deployment, load(HERE, "dev", {"retentionDays": 30}))
    assert found == (Change("aws:cloudwatch/logGroup:LogGroup", "keep", frozenset({"retentionInDays"})),)

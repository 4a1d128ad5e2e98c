"""Leftovers of other services: clusters, brokers, experiments, functions, buckets and more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError, EndpointConnectionError

from gpu_spot.aws_check.aws_test_bed import TAG
from gpu_spot.aws_check.leftover import Leftover, list_all, prefix
from gpu_spot.preflight.account import ClientOf, identify


def _is_of(tags: dict[str, str], run: str | None) -> bool:
    return TAG in tags and run in (None, tags[TAG])


def _clusters(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("eks")
    for name in list_all(client, "list_clusters", "clusters"):
        if name.startswith(prefix(run)):
            is_deleting = client.describe_cluster(name=name)["cluster"]["status"] == "DELETING"
            delete = None if is_deleting else partial(client.delete_cluster, name=name)
            yield Leftover(f"cluster {name}", delete)


def _brokers(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("mq")
    for broker in list_all(client, "list_brokers", "BrokerSummaries"):
        if broker["BrokerName"].startswith(prefix(run)):
            is_deleting = broker["BrokerState"] == "DELETION_IN_PROGRESS"
            delete = None if is_deleting else partial(client.delete_broker, BrokerId=broker["BrokerId"])
            yield Leftover(f"broker {broker['BrokerName']}", delete)


def _experiments(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("fis")
    for template in list_all(client, "list_experiment_templates", "experimentTemplates"):
        if _is_of(template.get("tags", {}), run):
            name = template["id"]
            yield Leftover(f"experiment {name}", partial(client.delete_experiment_template, id=name))


def _functions(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client, logs = clients("lambda"), clients("logs")
    for function in list_all(client, "list_functions", "Functions"):
        name = function["FunctionName"]
        if name.startswith(prefix(run)):
            yield Leftover(f"function {name}", partial(client.delete_function, FunctionName=name))
    for layer in list_all(client, "list_layers", "Layers"):
        name = layer["LayerName"]
        if name.startswith(prefix(run)):
            number = layer["LatestMatchingVersion"]["Version"]
            delete = partial(client.delete_layer_version, LayerName=name, VersionNumber=number)
            yield Leftover(f"layer {name}", delete)
    for root in ("", "/aws/lambda/"):
        groups = list_all(logs, "describe_log_groups", "logGroups", logGroupNamePrefix=root + prefix(run))
        for group in groups:
            name = group["logGroupName"]
            yield Leftover(f"log group {name}", partial(logs.delete_log_group, logGroupName=name))


def _buckets(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("s3")

    def delete_bucket(name: str) -> None:
        for item in list_all(client, "list_objects_v2", "Contents", Bucket=name):
            client.delete_object(Bucket=name, Key=item["Key"])
        client.delete_bucket(Bucket=name)

    for bucket in client.list_buckets()["Buckets"]:
        if bucket["Name"].startswith(prefix(run)):
            yield Leftover(f"bucket {bucket['Name']}", partial(delete_bucket, bucket["Name"]))


def _documents(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("ssm")
    owner_filter: list[dict[str, Any]] = [{"Key": "Owner", "Values": ["Self"]}]
    for document in list_all(client, "list_documents", "DocumentIdentifiers", Filters=owner_filter):
        name = document["Name"]
        if name.startswith(prefix(run)):
            yield Leftover(f"document {name}", partial(client.delete_document, Name=name))


def _budgets(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client, account = clients("budgets"), identify(clients).id
    try:
        budgets = [*list_all(client, "describe_budgets", "Budgets", AccountId=account)]
    except (ClientError, EndpointConnectionError):
        return  # an account of an organization may not see budgets; then it created none
    for budget in budgets:
        name = budget["BudgetName"]
        if name.startswith(prefix(run)):
            delete = partial(client.delete_budget, AccountId=account, BudgetName=name)
            yield Leftover(f"budget {name}", delete)


def _topics(clients: ClientOf, run: str | None) -> Iterator[Leftover]:
    client = clients("sns")
    for topic in list_all(client, "list_topics", "Topics"):
        name = topic["TopicArn"].rpartition(":")[2]
        if name.startswith(prefix(run)):
            yield Leftover(f"topic {name}", partial(client.delete_topic, TopicArn=topic["TopicArn"]))


KINDS: Final = (
    _clusters,
    _brokers,
    _experiments,
    _functions,
    _buckets,
    _documents,
    _budgets,
    _topics,
)

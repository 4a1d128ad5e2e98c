"""RabbitMQ queues: a created broker with restricted access, or an existing one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from contracts import broker_users, names, watched_queue
from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser, ManagedBroker
from contracts.watched_queue import WatchedQueue
from gpu_spot.declared.stackfile import load
from infra.catalogue.broker_types import TYPES, check
from infra.components.monitoring.queue_alarms import QueueLimits, alarms
from pulumi_on_moto import changes, deploy, sandbox
from tests.apart import apart
from tests.iam import Request, allows
from tests.infra import program
from tests.infra.declared import ROOT, Run, edited_file, heading, in_service, shipped
from tests.infra.training import EXISTING, OWN, queue_stack

NAME = "gpu-spot-dev-inference-mq"
CALLERS = ["10.30.0.0/16", "sg-0123456789abcdef0"]
SIGNED = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks a secret on its way to the engine."""


@pytest.fixture(scope="module")
def own() -> Run:
    return queue_stack({**OWN, "allowedSources": CALLERS})


KEY = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def cluster() -> Run:
    """Of prod, which is protected and has endpoints in place of NAT, with a key and previews."""
    window = {"day": "friday", "time": "23:59"}
    return queue_stack(
        {**OWN, "deployment": "cluster", "engineVersion": "3.13", "maintenance": window},
        "prod",
        kmsKeyArn=KEY,
        identity={"previews": {"repository": "acme@12/models@345"}},
    )


@pytest.fixture(scope="module")
def existing() -> Run:
    return queue_stack(EXISTING)


def by_name(of: Run, kind: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in of.declared if one["type"].endswith(f":{kind}") and one["custom"]}


def test_the_broker_is_private_patched_and_logs(own: Run) -> None:
    broker = own.the("Broker", "inference-mq")
    assert broker["publiclyAccessible"] is False
    assert broker["autoMinorVersionUpgrade"] is True
    assert broker["applyImmediately"] is False
    assert broker["logs"] == {"general": True}
    assert (broker["engineType"], broker["engineVersion"]) == ("RabbitMQ", "4.2")
    assert broker["deploymentMode"] == "SINGLE_INSTANCE"
    assert broker["subnetIds"] == ["gpu-spot-dev-private-us-west-2a-id"]
    window = {"dayOfWeek": "SUNDAY", "timeOfDay": "03:00", "timeZone": "UTC"}
    assert broker["maintenanceWindowStartTime"] == window


def test_a_cluster_is_in_three_zones(cluster: Run) -> None:
    broker = cluster.the("Broker", "inference-mq")
    zones = [f"gpu-spot-prod-private-us-west-2{letter}-id" for letter in "abc"]  # of four
    assert (broker["deploymentMode"], broker["subnetIds"]) == ("CLUSTER_MULTI_AZ", zones)
    assert broker["engineVersion"] == "3.13"
    assert broker["maintenanceWindowStartTime"]["dayOfWeek"] == "FRIDAY"


def test_only_workers_and_callers_may_connect_to_two_ports(own: Run) -> None:
    rules = [
        one for name, one in own.of("SecurityGroupIngressRule").items() if name.startswith("inference-mq")
    ]
    assert all(one["securityGroupId"] == f"{NAME}-id" and one["fromPort"] == one["toPort"] for one in rules)
    sources_and_ports = {
        (one.get("referencedSecurityGroupId") or one["cidrIpv4"], one["ipProtocol"], int(one["fromPort"]))
        for one in rules
    }
    sources = ("gpu-spot-dev-workers-id", *CALLERS)
    assert sources_and_ports == {(source, "tcp", port) for source in sources for port in (443, 5671)}
    assert len(rules) == len(sources_and_ports)
    assert own.the("Broker", "inference-mq")["securityGroups"] == [f"{NAME}-id"]
    assert not [name for name in own.of("SecurityGroupEgressRule") if name.startswith("inference-mq")]


def test_the_password_is_generated_once_and_comes_from_the_secret(own: Run) -> None:
    """AWS tells no users of RabbitMQ, so the provider forgets them: the broker cannot keep it."""
    versions = by_name(own, "SecretVersion")
    password, url = versions["inference-mq-password"], versions["inference-mq-url"]
    assert "secretString" in password["ignore_changes"]
    assert "secretString" not in url["ignore_changes"]  # a new broker has a new address
    [broker] = by_name(own, "Broker").values()
    assert set(broker["ignore_changes"]) == {"users", "subnetIds"}
    assert broker["inputs"]["users"]["value"] == [{"username": "gpu-spot", "password": "drawn"}]
    assert url["inputs"]["secretString"]["value"] == "amqps://gpu-spot:drawn@b-1.mq.example.com:5671"


def test_every_version_has_a_label_and_rotation_is_not_reverted(own: Run) -> None:
    versions = by_name(own, "SecretVersion")
    assert {
        name.rpartition("-")[2]: set(one["inputs"]["versionStages"]) for name, one in versions.items()
    } == {"password": {"PASSWORD"}, "url": {"AWSCURRENT", "URL"}}
    assert all("versionStages" in one["ignore_changes"] for one in versions.values())


def test_the_password_is_a_pulumi_secret(own: Run) -> None:
    """What is marked so the engine encrypts in its state and hides in a preview."""

    def plain(value: Any) -> str:
        if isinstance(value, dict):
            return "" if SIGNED in value else " ".join(map(plain, value.values()))
        return " ".join(map(plain, value)) if isinstance(value, list) else str(value)

    for one in own.declared:
        assert "drawn" not in plain(one["inputs"]), one["name"]
    assert "drawn" not in json.dumps(own.exports)


def test_what_holds_data_is_protected(cluster: Run) -> None:
    for kind in ("Broker", "Secret"):
        protected = {name for name, one in by_name(cluster, kind).items() if one["protect"]}
        assert protected == {"inference-mq"}, kind


@pytest.mark.parametrize(("which", "secret"), [("own", f"{NAME}-workers"), ("existing", "queues/ocr")])
def test_workers_read_the_url_from_a_secret_that_only_their_role_may_read(
    which: str, secret: str, request: pytest.FixtureRequest
) -> None:
    of: Run = request.getfixturevalue(which)
    for side in ("primary", "fallback"):
        result = of.agent(f"inference-{side}")["service"]["queue"]
        assert result == {"secret": secret, "name": "inference"}
    policy = of.policy("inference-instance")
    granted = [one for one in policy["Statement"] if "secretsmanager:GetSecretValue" in one["Action"]]
    account = "arn:aws:secretsmanager:us-west-2:123456789012:secret"
    assert [one["Resource"] for one in granted] == [[f"{account}:{secret}-??????"]]


def test_an_existing_broker_is_not_created(existing: Run) -> None:
    kinds = {one["type"].rpartition(":")[2] for one in existing.declared}
    assert not kinds & {"Broker", "Secret", "SecretVersion"}
    assert "queues" not in existing.exports
    assert queue_alarms(existing).keys() == {"length", "message-age", "no-consumers", "unreachable"}


def test_the_agents_configuration_has_the_queues_settings() -> None:
    result = queue_stack({**EXISTING, "name": "pages", "maxDeliveries": 3, "maxLength": 0})
    assert result.agent("inference-primary")["service"]["queue"] == {
        "secret": "queues/ocr",
        "name": "pages",
        "tries": 3,
        "most": 0,
    }


def test_the_secret_is_under_the_stacks_key_and_the_role_may_use_it(cluster: Run) -> None:
    assert cluster.the("Secret", "inference-mq")["kmsKeyId"] == KEY
    use = cluster.statements("inference-instance")["UseKey"]
    assert "secretsmanager.us-west-2.*" in use["Condition"]["StringLike"]["kms:ViaService"]


def test_without_a_way_out_there_is_an_endpoint_for_the_secret(cluster: Run) -> None:
    assert "endpoint-secretsmanager" in cluster.of("VpcEndpoint")


def test_previews_may_generate_a_password(cluster: Run) -> None:
    policy = cluster.policy("previews")
    assert ["secretsmanager:GetRandomPassword"] in [one["Action"] for one in policy["Statement"]]


def queue_alarms(of: Run) -> dict[str, dict[str, Any]]:
    return {name.partition("-queue-")[2]: alarm for name, alarm in of.alarms().items() if "-queue-" in name}


def test_alarms_use_metrics_of_this_broker(own: Run) -> None:
    found = queue_alarms(own)
    assert found.keys() == {"disk", "down", "length", "memory", "message-age", "no-consumers", "unreachable"}
    of = {"Broker": f"{NAME}-0123456"}
    assert found["down"]["dimensions"] == of
    for name in ("disk", "memory"):  # which metrics: test_alarms.py
        assert [query["metric"]["dimensions"] for query in found[name]["metricQueries"][:-1]] == [of, of]


@pytest.mark.parametrize("which", ["own", "existing"])
def test_alarms_of_the_queue_use_metrics_that_the_watcher_emits(
    which: str, request: pytest.FixtureRequest
) -> None:
    of: Run = request.getfixturevalue(which)
    found = queue_alarms(of)
    sent = {value for name, value in vars(names).items() if name.startswith("METRIC_QUEUE_")}
    variables = of.the("Function", "queues")["environment"]["variables"]
    group = {"group": "inference", "stack": "dev", "service": variables["POWERTOOLS_SERVICE_NAME"]}
    for name in ("message-age", "unreachable", "length"):
        assert found[name]["dimensions"] == group
        assert found[name]["namespace"] == variables["POWERTOOLS_METRICS_NAMESPACE"]
        assert found[name]["metricName"] in sent
    assert all(query["metric"]["dimensions"] == group for query in found["no-consumers"]["metricQueries"][:2])


def test_the_watcher_runs_in_the_workers_subnets_and_has_every_queue(own: Run, existing: Run) -> None:
    for of, secret in ((own, f"{NAME}-monitor"), (existing, "queues/ocr")):
        function = of.the("Function", "queues")
        assert function["vpcConfig"]["securityGroupIds"] == ["gpu-spot-dev-workers-id"]
        private = [f"gpu-spot-dev-private-us-west-2{letter}-id" for letter in "abc"]
        assert function["vpcConfig"]["subnetIds"] == private
        [queue] = watched_queue.parse(function["environment"]["variables"][names.ENV_QUEUES])
        assert queue == WatchedQueue("inference", "rabbitmq", "inference", secret)
    assert own.the("EventRule", "queues")["scheduleExpression"] == "rate(1 minute)"
    permission = own.the("Permission", "queues")
    assert permission["principal"] == "events.amazonaws.com"
    assert permission["sourceArn"] == "arn:gpu-spot-dev-queues"


def test_the_watcher_may_read_its_secrets_and_write_items_of_queues_only(cluster: Run) -> None:
    policy = cluster.policy("queues-function")["Statement"]
    found = {one["Sid"]: one for one in policy}
    assert {action for one in policy if one["Effect"] == "Allow" for action in one["Action"]} >= {
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "secretsmanager:GetSecretValue",
    }
    table = found["KeepQueues"]["Resource"][0]
    for keys, may in ((["inference@queue"], True), (["inference"], False), (["a@queue", "a"], False)):
        asked = Request("dynamodb:PutItem", table, {"dynamodb:LeadingKeys": keys})
        assert allows([{"Statement": policy}], asked) is may
    assert not allows([{"Statement": policy}], Request("dynamodb:PutItem", table, {}))
    secret = "arn:aws:secretsmanager:us-west-2:123456789012:secret:gpu-spot-prod-inference-mq-monitor-??????"
    assert found["ReadQueueSecrets"]["Resource"] == [secret]
    denied = found["OnlyLambdaInTheNetwork"]
    assert denied["Effect"] == "Deny"
    assert denied["Action"] == found["BeInTheNetwork"]["Action"]
    own = "arn:aws:lambda:us-west-2:123456789012:function:gpu-spot-prod-queues"
    assert own in denied["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"]
    assert set(found) == {
        *("WriteLog", "KeepQueues", "BeInTheNetwork", "OnlyLambdaInTheNetwork", "ReadQueueSecrets", "UseKey")
    }


def readers(of: Run, secret: str) -> set[str]:
    """The roles whose policies allow to read a secret."""
    arn = f"arn:aws:secretsmanager:us-west-2:123456789012:secret:{secret}-a1B2c3"
    asked = Request("secretsmanager:GetSecretValue", arn)
    return {
        name for name, policy in of.of("RolePolicy").items() if allows([json.loads(policy["policy"])], asked)
    }


def test_the_administrators_url_is_read_by_the_function_that_maintains_users_only(cluster: Run) -> None:
    name = "gpu-spot-prod-inference-mq"
    assert readers(cluster, name) == {"broker-users-function"}
    assert readers(cluster, f"{name}-workers") == {"broker-users-function", "inference-instance"}
    assert readers(cluster, f"{name}-clients") == {"broker-users-function"}
    assert readers(cluster, f"{name}-monitor") == {"broker-users-function", "queues-function"}


def test_the_function_of_the_users_has_the_queue_and_its_users(own: Run) -> None:
    function = own.the("Function", "broker-users")
    assert function["vpcConfig"]["securityGroupIds"] == ["gpu-spot-dev-workers-id"]
    assert own.the("EventRule", "broker-users")["scheduleExpression"] == "rate(1 minute)"
    [broker] = broker_users.parse(function["environment"]["variables"][names.ENV_BROKERS])
    assert broker == ManagedBroker(
        NAME,
        (BrokerQueue("inference", 20, 100_000),),
        (
            BrokerUser("inference.workers", BrokerRole.WORKERS, f"{NAME}-workers", "inference"),
            BrokerUser("inference.clients", BrokerRole.CLIENTS, f"{NAME}-clients", "inference"),
            BrokerUser("monitor", BrokerRole.MONITOR, f"{NAME}-monitor"),
        ),
    )
    queue = own.exports["queues"]["inference"]
    assert (queue["secret"], queue["administrator"]) == (f"{NAME}-clients", NAME)


def test_the_function_of_the_users_may_write_their_secrets_and_has_alarms(cluster: Run) -> None:
    found = cluster.statements("broker-users-function")
    assert set(found) == {"WriteLog", "RotatePasswords", "BeInTheNetwork", "OnlyLambdaInTheNetwork", "UseKey"}
    assert set(found["RotatePasswords"]["Action"]) == {
        "secretsmanager:GetSecretValue",
        "secretsmanager:PutSecretValue",
        "secretsmanager:UpdateSecretVersionStage",
    }
    assert {"broker-users-errors", "broker-users-not-running"} <= cluster.alarms().keys()


def test_a_stack_without_queues_has_no_watcher() -> None:
    assert not {"queues", "broker-users"} & shipped("dev").of("Function").keys()


def test_an_existing_broker_has_no_users_of_the_stack(existing: Run) -> None:
    assert "broker-users" not in existing.of("Function")


def test_every_alarm_of_a_broker_has_a_heading_in_the_runbook(own: Run) -> None:
    for name in own.alarms():
        if "-queue-" in name:
            assert heading(name) == f"<group>{name.partition('inference')[2]}"


def test_a_queue_without_a_limit_has_no_alarm_for_it() -> None:
    assert "ocr-queue-length" not in {one.name for one in alarms("dev", QueueLimits("ocr", 0, 60))}
    assert "ocr-queue-length" in {one.name for one in alarms("dev", QueueLimits("ocr", 1, 60))}


def test_every_pair_in_the_table_is_allowed_and_no_other() -> None:
    every = {kind for kinds in TYPES.values() for kind in kinds}
    for (version, deployment), allowed in TYPES.items():
        for kind in sorted(every):
            if kind in allowed:
                check(version, deployment, kind)
            else:
                said = rf"'{kind}' does not run RabbitMQ {version} as '{deployment}'; use "
                with pytest.raises(ValueError, match=said):
                    check(version, deployment, kind)
    assert not [kind for kind in TYPES["4.2", "single"] if not kind.startswith("mq.m7g.")]


def _rehearsed(folder: str) -> dict[str, Any]:
    """Deploy, run again, change the password by hand, run again; return what was seen."""
    config = load(Path(folder), "dev", {"services[0].command": ["serve"], "services[0].queue": OWN})
    with sandbox(config.region) as clients:
        deployment = deploy(clients, config)
        secret = deployment.outputs["queues"]["inference"]["administrator"]
        secrets = clients("secretsmanager")
        result = {"url": secrets.get_secret_value(SecretId=secret)["SecretString"]}
        result["after"] = changes(deployment, config)
        secrets.put_secret_value(SecretId=secret, SecretString="amqps://other:user@b")
        result["rotated"] = changes(deployment, config)
        versions = secrets.list_secret_version_ids(SecretId=secret)["Versions"]
        monitor = next(
            one["Name"] for one in secrets.list_secrets()["SecretList"] if "monitor" in one["Name"]
        )
        secrets.put_secret_value(SecretId=monitor, SecretString="amqps://monitor:password@b")
        result["labels"] = sorted(label for one in versions for label in one.get("VersionStages", ()))
        [broker] = clients("mq").list_brokers()["BrokerSummaries"]
        [watcher] = [name for name in deployment.functions.functions if "-queues-" in name]
        ran = deployment.functions.invoke(watcher, {})
        result["watched"] = (ran.error, *map(json.loads, ran.log))
        [manager] = [name for name in deployment.functions.functions if "-broker-users-" in name]
        managed = deployment.functions.invoke(manager, {})
        result["managed"] = (managed.error, *map(json.loads, managed.log))
        table = deployment.outputs["registryTable"]
        result["rows"] = clients("dynamodb").scan(TableName=table)["Items"]
        result["endpoint"] = clients("mq").describe_broker(BrokerId=broker["BrokerId"])["BrokerInstances"]
        return result


def test_an_update_keeps_the_password_before_and_after_a_rotation() -> None:
    result = apart(_rehearsed, str(ROOT))
    [instance] = result["endpoint"]
    [endpoint] = instance["Endpoints"]
    host = re.escape(endpoint.removeprefix("amqps://"))
    assert re.fullmatch(rf"amqps://gpu-spot:[A-Za-z0-9]{{32}}@{host}", result["url"])
    assert (result["after"], result["rotated"]) == ((), ())
    # The deployed function runs from its archive and cannot reach the broker: it emits no zeros.
    error, line, metrics = result["watched"]
    assert (error, result["rows"]) == ("", [])
    assert (metrics["group"], metrics["QueueUnreachable"]) == ("inference", [1.0])
    assert line["reason"].startswith("https://b:15671 does not respond: gaierror")
    # So it is with that of the users, which fails.
    error, line = result["managed"]
    assert line["message"] == "broker users incomplete"
    assert "https://b:15671 does not respond: gaierror: [Errno -2]" in line["reason"]
    assert "does not respond" in error
    assert result["labels"] == ["AWSCURRENT", "AWSPREVIOUS", "PASSWORD", "URL"]


def test_a_name_that_is_too_long_for_a_broker_is_rejected() -> None:
    file = edited_file(in_service(name="i" * 24, command=["serve"], queue=OWN))
    error, _ = apart(program.refused, "unknown", "production-europe", file)
    assert "must have at most 42 characters" in error

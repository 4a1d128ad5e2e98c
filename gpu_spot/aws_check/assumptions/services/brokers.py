"""RabbitMQ brokers of Amazon MQ: what CreateBroker rejects, and a broker that its tests share."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from contracts.partitions import DNS_SUFFIXES
from gpu_spot.aws_check import cost
from gpu_spot.aws_check.assumption import BilledResource, assumes
from gpu_spot.aws_check.aws_test_bed import TAG, AwsTestBed, Falsified
from infra.catalogue.broker_types import MODES, TYPES

_MODULE: Final = "infra/components/queues/rabbitmq/broker.py"
_GUIDE: Final = "Amazon MQ guide"
_USER: Final = "gpu-spot"
_PASSWORD: Final = "Check-0123456789"  # noqa: S105 - of a broker that exists for two hours
_VERSION: Final = "4.2"
_SINGLE: Final = BilledResource("broker", {cost.BROKER: 2.0})
_CLUSTER: Final = BilledResource("broker cluster", {cost.BROKER: 6.0})
_NO_BROKER: Final = "moto's brokers have no server"
_METRICS: Final = (
    "ConnectionCount",
    "RabbitMQMemUsed",
    "RabbitMQMemLimit",
    "RabbitMQDiskFree",
    "RabbitMQDiskFreeLimit",
)


def _create(test_bed: AwsTestBed, suffix: str, **options: Any) -> str:
    """Create a broker as the stack does, but reachable from outside of the VPC; return its id."""
    arguments = {
        "BrokerName": test_bed.resource_name(suffix),
        "EngineType": "RABBITMQ",
        "EngineVersion": _VERSION,
        "HostInstanceType": cost.BROKER,
        "DeploymentMode": MODES["single"],
        "AutoMinorVersionUpgrade": True,
        "PubliclyAccessible": True,
        "Users": [{"Username": _USER, "Password": _PASSWORD}],
        "Tags": {TAG: test_bed.run},
    } | options
    return str(test_bed.clients("mq").create_broker(**arguments)["BrokerId"])


def _broker(test_bed: AwsTestBed, suffix: str = "broker", **options: Any) -> Mapping[str, Any]:
    """Return the run's broker once it runs; the first test creates it."""
    client, name = test_bed.clients("mq"), test_bed.resource_name(suffix)
    existing = [b["BrokerId"] for b in client.list_brokers()["BrokerSummaries"] if b["BrokerName"] == name]
    broker = existing[0] if existing else _create(test_bed, suffix, **options)

    def running() -> Mapping[str, Any] | None:
        described: Mapping[str, Any] = client.describe_broker(BrokerId=broker)
        return described if described["BrokerState"] == "RUNNING" else None

    return test_bed.wait_until(running, "the broker runs", 2400)


def _host(broker: Mapping[str, Any]) -> str:
    return str(urlsplit(broker["BrokerInstances"][0]["ConsoleURL"]).hostname)


def _request(
    broker: Mapping[str, Any], method: str, path: str, body: Any = None, user: str = _USER
) -> tuple[int, bytes]:
    """Call the broker's management API."""
    token = base64.b64encode(f"{user}:{_PASSWORD}".encode()).decode()
    connection = http.client.HTTPSConnection(
        _host(broker), 443, timeout=20, context=ssl.create_default_context()
    )
    headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@assumes("CreateBroker, Users", _MODULE, "it is accepted")
def broker_takes_one_user(test_bed: AwsTestBed) -> str:
    """CreateBroker rejects two users of a RabbitMQ broker."""
    users = [{"Username": f"{_USER}{n}", "Password": _PASSWORD} for n in (1, 2)]
    return test_bed.expect_refusal(lambda: _create(test_bed, "two-users", Users=users), "one", "user")


@assumes("CreateBroker, AutoMinorVersionUpgrade", _MODULE, "it is accepted")
def broker_needs_upgrades(test_bed: AwsTestBed) -> str:
    """CreateBroker rejects RabbitMQ 4.2 without automatic minor version upgrades."""
    return test_bed.expect_refusal(
        lambda: _create(test_bed, "no-upgrades", AutoMinorVersionUpgrade=False), "autoMinorVersionUpgrade"
    )


@assumes("CreateBroker, SubnetIds", _MODULE, "it is accepted")
def single_broker_has_one_subnet(test_bed: AwsTestBed) -> str:
    """CreateBroker rejects two subnets for one broker instance."""
    subnets = list(test_bed.subnets.values())[:2]
    return test_bed.expect_refusal(
        lambda: _create(test_bed, "two-subnets", SubnetIds=subnets, PubliclyAccessible=False), "subnet"
    )


@assumes("CreateBroker, User, Password", _MODULE, "it is accepted")
def password_without_separators(test_bed: AwsTestBed) -> str:
    """CreateBroker rejects a password with a comma, colon or equal sign."""
    users = [{"Username": _USER, "Password": "Check:0123,456=789"}]
    return test_bed.expect_refusal(lambda: _create(test_bed, "password", Users=users), "password")


@assumes(
    f'{_GUIDE}, "Managing Amazon MQ for RabbitMQ engine versions" and "Sizing guidelines"',
    "infra/catalogue/broker_types.py",
    "a type of the catalogue is not offered for its version and mode",
    unsupported_reason="moto has no DescribeBrokerInstanceOptions",
)
def broker_types(test_bed: AwsTestBed) -> str:
    """DescribeBrokerInstanceOptions offers each type of the catalogue for its version and mode."""
    client = test_bed.clients("mq")
    options = client.describe_broker_instance_options(EngineType="RABBITMQ", MaxResults=100)
    offered = {
        (version, mode, option["HostInstanceType"])
        for option in options["BrokerInstanceOptions"]
        for version in option["SupportedEngineVersions"]
        for mode in option["SupportedDeploymentModes"]
    }
    expected = {(v, MODES[mode], kind) for (v, mode), kinds in TYPES.items() for kind in kinds}
    if missing := sorted(expected - offered):
        raise Falsified(f"not offered: {missing[:3]} and {max(0, len(missing) - 3)} more")
    return f"{len(expected)} combinations offered"


@assumes(
    f'{_GUIDE}, "Connecting a Java application to your broker"; DescribeBroker, BrokerInstances',
    "lambdas/core/queues/management_api.py",
    "another port, scheme or domain",
    resources=(_SINGLE,),
    dollars=5,
)
def broker_endpoint(test_bed: AwsTestBed) -> str:
    """A broker has one AMQPS endpoint at port 5671, and a console at the same host, in a known domain."""
    broker = _broker(test_bed)
    [instance] = broker["BrokerInstances"]
    suffixes = (f".{DNS_SUFFIXES[test_bed.partition]}", ".on.aws")
    host = _host(broker)
    if instance["Endpoints"] != [f"amqps://{host}:5671"] or not host.endswith(suffixes):
        raise Falsified(f"endpoints {instance['Endpoints']}, console {instance['ConsoleURL']}")
    if not re.match(r"b-[0-9a-f-]+\.", host):
        raise Falsified(f"the host is {host}")
    return host.partition(".")[2]


@assumes(
    f'{_GUIDE}, "Simple authentication and authorization"',
    _MODULE,
    "the user cannot be created, or cannot log in",
    resources=(_SINGLE,),
    dollars=5,
    unsupported_reason=_NO_BROKER,
)
def users_by_management_api(test_bed: AwsTestBed) -> str:
    """The first user can create users with RabbitMQ's management API, and they can use it."""
    broker = _broker(test_bed)
    status, _ = _request(
        broker, "PUT", "/api/users/check", {"password": _PASSWORD, "tags": "monitoring"}, _USER
    )
    if status not in (201, 204):
        raise Falsified(f"PUT /api/users: status {status}")
    test_bed.clock.sleep(5)
    status, _ = _request(broker, "GET", "/api/overview", user="check")
    if status != 200:
        raise Falsified(f"GET /api/overview of the new user: status {status}")
    return "created, and it reads the overview"


@assumes(
    f'{_GUIDE}, "Simple authentication and authorization"',
    _MODULE,
    "the API returns users",
    resources=(_SINGLE,),
    dollars=5,
)
def users_are_not_returned(test_bed: AwsTestBed) -> str:
    """DescribeBroker returns no users of a RabbitMQ broker."""
    if users := _broker(test_bed).get("Users"):
        raise Falsified(f"it returns {users}")
    return "no users"


@assumes(
    "terraform-provider-aws 33514; no page of AWS says so",
    _MODULE,
    "it is accepted",
    resources=(_SINGLE,),
    dollars=5,
)
def security_groups_are_final(test_bed: AwsTestBed) -> str:
    """UpdateBroker rejects security groups for a RabbitMQ broker."""
    broker, client = _broker(test_bed)["BrokerId"], test_bed.clients("mq")
    return test_bed.expect_refusal(
        lambda: client.update_broker(BrokerId=broker, SecurityGroups=["sg-0123456789abcdef0"]),
        "security group",
    )


@assumes(
    "UpdateBroker; DescribeBroker, PendingHostInstanceType",
    _MODULE,
    "the type changes at once, or nothing is pending",
    resources=(_SINGLE,),
    dollars=5,
    unsupported_reason="moto changes brokers at once",
)
def change_waits_for_maintenance(test_bed: AwsTestBed) -> str:
    """Without a reboot a new instance type is pending until the maintenance window."""
    broker, client = _broker(test_bed)["BrokerId"], test_bed.clients("mq")
    client.update_broker(BrokerId=broker, HostInstanceType="mq.m7g.large")
    described = client.describe_broker(BrokerId=broker)
    shown = (described["HostInstanceType"], described.get("PendingHostInstanceType"))
    client.update_broker(BrokerId=broker, HostInstanceType=cost.BROKER)
    if shown != (cost.BROKER, "mq.m7g.large"):
        raise Falsified(f"type and pending type are {shown}")
    return "pending, the type did not change"


@assumes(
    f'{_GUIDE}, "Available CloudWatch metrics for Amazon MQ for RabbitMQ brokers"',
    "infra/components/queues/rabbitmq/alarms.py",
    "a metric is missing after 20 minutes, or has other dimensions",
    resources=(_SINGLE,),
    dollars=5,
    unsupported_reason=_NO_BROKER,
)
def broker_metrics(test_bed: AwsTestBed) -> str:
    """A broker sends the metrics of the alarms with its name as only dimension."""
    name, client = _broker(test_bed)["BrokerName"], test_bed.clients("cloudwatch")

    def sent() -> list[str] | None:
        metrics = client.list_metrics(
            Namespace="AWS/AmazonMQ", Dimensions=[{"Name": "Broker", "Value": name}]
        )["Metrics"]
        alone = {metric["MetricName"] for metric in metrics if len(metric["Dimensions"]) == 1}
        return sorted(alone) if alone.issuperset(_METRICS) else None

    return f"{len(test_bed.wait_until(sent, ', '.join(_METRICS), 1200))} metrics"


@assumes(
    f'{_GUIDE}, "Deployment options for Amazon MQ for RabbitMQ brokers"',
    _MODULE,
    "it has several endpoints",
    resources=(_CLUSTER,),
    dollars=25,
)
def cluster_has_one_endpoint(test_bed: AwsTestBed) -> str:
    """A cluster deployment has one endpoint for its three nodes."""
    broker = _broker(test_bed, "cluster", DeploymentMode=MODES["cluster"])
    endpoints = [endpoint for instance in broker["BrokerInstances"] for endpoint in instance["Endpoints"]]
    if len(endpoints) != 1:
        raise Falsified(f"endpoints are {endpoints}")
    return str(endpoints[0].partition(".")[2])


@assumes(
    f'{_GUIDE}, "Deployment options for Amazon MQ for RabbitMQ brokers"; RebootBroker',
    "infra/schema/services/queues/rabbitmq.py",
    "it answers no request for more than a minute",
    resources=(_CLUSTER,),
    dollars=25,
    unsupported_reason=_NO_BROKER,
)
def cluster_serves_during_a_reboot(test_bed: AwsTestBed) -> str:
    """A cluster deployment serves while a reboot, as in maintenance, restarts its nodes."""
    broker, clock = _broker(test_bed, "cluster", DeploymentMode=MODES["cluster"]), test_bed.clock
    client = test_bed.clients("mq")
    client.reboot_broker(BrokerId=broker["BrokerId"])
    last, longest = clock.now(), 0.0

    def restarted() -> bool:
        nonlocal last, longest
        try:
            if _request(broker, "GET", "/api/overview")[0] == 200:
                last = clock.now()
        except (OSError, http.client.HTTPException):
            pass
        longest = max(longest, clock.now() - last)
        state = client.describe_broker(BrokerId=broker["BrokerId"])["BrokerState"]
        return state == "RUNNING" and clock.now() - last < 10

    clock.sleep(30)
    test_bed.wait_until(restarted, "the broker runs again", 1800)
    if longest > 60:
        raise Falsified(f"no answer for {longest:.0f} s")
    return f"no answer for at most {longest:.0f} s"


@assumes("CreateUser", _MODULE, "it is accepted", resources=(_SINGLE,), dollars=5)
def no_users_api(test_bed: AwsTestBed) -> str:
    """CreateUser, which is for ActiveMQ, is rejected for a RabbitMQ broker."""
    broker, client = _broker(test_bed)["BrokerId"], test_bed.clients("mq")
    try:
        client.create_user(BrokerId=broker, Username="check-2", Password=_PASSWORD)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    raise Falsified("it is accepted")

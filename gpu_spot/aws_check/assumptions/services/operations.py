"""Session documents of tenants, and the stack's monthly budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from contracts import names
from gpu_spot.aws_check import roles
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from infra.components.tenants.tenancy import forwarding, shell

_BUDGETS: Final = "infra/components/monitoring/monitoring.py"


def _create_document(test_bed: AwsTestBed, name: str, content: Mapping[str, Any]) -> None:
    """Create a session document. Raises ``Falsified`` if it is rejected."""
    ssm = test_bed.clients("ssm")
    test_bed.expect_success(
        lambda: ssm.create_document(
            Name=name,
            DocumentType="Session",
            DocumentFormat="JSON",
            Content=json.dumps(content),
            Tags=test_bed.tags,
        )
    )


@assumes(
    'Systems Manager guide, "Session document schema"',
    "infra/components/tenants/tenancy.py",
    "CreateDocument is rejected",
)
def document_with_a_fixed_port(test_bed: AwsTestBed) -> str:
    """A session document can fix the host's port and leave the local port to the caller."""
    ssm, name = test_bed.clients("ssm"), test_bed.resource_name("port")
    _create_document(test_bed, name, forwarding("check", 8080))
    content = json.loads(ssm.get_document(Name=name)["Content"])
    if content["properties"]["portNumber"] != "8080":
        raise Falsified(f"its properties are {content['properties']}")
    return "accepted with port 8080"


@assumes(
    'Systems Manager guide, "Restrict access to commands in a session"',
    "infra/components/tenants/tenancy.py",
    "CreateDocument is rejected, or the document has parameters",
)
def document_with_a_fixed_command(test_bed: AwsTestBed) -> str:
    """A session document can fix a command of root's and leave nothing to the caller."""
    ssm, name = test_bed.clients("ssm"), test_bed.resource_name("shell")
    _create_document(test_bed, name, shell("check"))
    described = ssm.describe_document(Name=name)["Document"]
    if described.get("Parameters"):
        raise Falsified(f"its parameters are {described['Parameters']}")
    return "accepted without parameters"


@assumes(
    'AWS Cost Management guide, "Creating a budget"; CreateBudget, CostFilters',
    _BUDGETS,
    "it is rejected, or stored with other filters",
)
def budget_by_tag(test_bed: AwsTestBed) -> str:
    """A cost budget can be filtered by a user-defined tag, written user:key$value."""
    client, name = test_bed.clients("budgets"), test_bed.resource_name("budget")
    account, value = test_bed.account.id, f"user:{names.TAG_STACK}${test_bed.run}"
    budget = {
        "BudgetName": name,
        "BudgetLimit": {"Amount": "1", "Unit": "USD"},
        "TimeUnit": "MONTHLY",
        "BudgetType": "COST",
        "CostFilters": {"TagKeyValue": [value]},
    }
    test_bed.expect_success(lambda: client.create_budget(AccountId=account, Budget=budget))
    stored = client.describe_budget(AccountId=account, BudgetName=name)["Budget"]
    if stored.get("CostFilters") != budget["CostFilters"]:
        raise Falsified(f"its filters are {stored.get('CostFilters')}")
    return "stored with the filter"


@assumes(
    'AWS Cost Management guide, "Creating an Amazon SNS topic for budget notifications"',
    "infra/iam/resource_policies.py",
    "SNS rejects the policy",
)
def topic_for_alarms_and_budgets(test_bed: AwsTestBed) -> str:
    """A topic's policy can allow CloudWatch and Budgets to publish on behalf of one account."""
    sns = test_bed.clients("sns")
    topic = sns.create_topic(Name=test_bed.resource_name("alarms"), Tags=test_bed.tags)["TopicArn"]
    statement = {
        "Principal": {"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
        "Action": "sns:Publish",
        "Resource": topic,
        "Condition": {"StringEquals": {"aws:SourceAccount": test_bed.account.id}},
    }
    policy = roles.document([statement])
    test_bed.expect_success(
        lambda: sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)
    )
    stored = json.loads(sns.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"])
    if stored["Statement"][0].get("Condition") != statement["Condition"]:
        raise Falsified(f"stored is {stored}")
    return "stored with the condition"

"""Monitoring: alarms, dashboards, budgets. They are kept; nothing here evaluates them."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import Draft, Made, Spec
from pulumi_on_moto.sandbox import ACCOUNT


def _dimensions(draft: Draft) -> None:
    dimensions = draft.take("dimensions")
    if dimensions:
        draft.put(Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()])


def _alarm(draft: Draft) -> None:
    _dimensions(draft)
    queries = draft.take("metricQueries")
    if queries:
        draft.put(Metrics=[_query(draft, dict(query)) for query in queries])


def _query(draft: Draft, query: dict[str, Any]) -> Any:
    """Return a query in AWS's shape: its metric stands one step deeper there, with listed dimensions."""
    if metric := query.pop("metric", None):
        given = dict(metric)
        dimensions = [{"name": k, "value": v} for k, v in (given.pop("dimensions", None) or {}).items()]
        name = {"namespace": given.pop("namespace", None), "metricName": given.pop("metricName")}
        query["metricStat"] = {**given, "metric": {**name, "dimensions": dimensions}}
    return draft.matched("cloudwatch", "PutMetricAlarm", query, "metricQueries", "Metrics", "[]")


def _budget(draft: Draft) -> None:
    limit = {"Amount": str(draft.need("limitAmount")), "Unit": draft.need("limitUnit")}
    budget: dict[str, Any] = {
        "BudgetName": draft.need("name"),
        "BudgetType": draft.need("budgetType"),
        "TimeUnit": draft.need("timeUnit"),
        "BudgetLimit": limit,
        "CostFilters": {one["name"]: one["values"] for one in draft.take("costFilters") or []},
    }
    draft.put(AccountId=draft.take("accountId") or ACCOUNT, Budget=budget)


def _notifications(made: Made) -> None:
    budgets = made.clients("budgets")
    for given in made.inputs.get("notifications") or []:
        addresses = [("SNS", arn) for arn in given.get("subscriberSnsTopicArns") or []]
        addresses += [("EMAIL", address) for address in given.get("subscriberEmailAddresses") or []]
        budgets.create_notification(
            AccountId=ACCOUNT,
            BudgetName=made.params["Budget"]["BudgetName"],
            Notification={
                "NotificationType": given["notificationType"],
                "ComparisonOperator": given["comparisonOperator"],
                "Threshold": float(given["threshold"]),
                "ThresholdType": given["thresholdType"],
            },
            Subscribers=[{"SubscriptionType": kind, "Address": address} for kind, address in addresses],
        )


SPECS: dict[str, Spec] = {
    "aws:cloudwatch/metricAlarm:MetricAlarm": Spec(
        "cloudwatch.put_metric_alarm",
        "=AlarmName",
        rename={"name": "AlarmName", "alarmDescription": "AlarmDescription"},
        autoname="name",
        tags="list",
        shape=_alarm,
        outputs=lambda made: {"arn": made.arn("cloudwatch", f"alarm:{made.id}")},
    ),
    "aws:cloudwatch/dashboard:Dashboard": Spec(
        "cloudwatch.put_dashboard",
        "=DashboardName",
        outputs=lambda made: {"dashboardArn": f"arn:aws:cloudwatch::{ACCOUNT}:dashboard/{made.id}"},
    ),
    "aws:budgets/budget:Budget": Spec(
        "budgets.create_budget",
        lambda made: f"{made.params['AccountId']}:{made.params['Budget']['BudgetName']}",
        rename={"tags": "ResourceTags"},
        autoname="name",
        tags="list",
        shape=_budget,
        after=_notifications,
        takes=frozenset({"notifications"}),
    ),
}

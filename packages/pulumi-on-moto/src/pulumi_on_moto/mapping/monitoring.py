"""Monitoring: alarms, dashboards, budgets, which are stored and not evaluated; experiments of AWS FIS."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths


def _alarm(draft: ResourceRequest) -> None:
    if queries := draft.take("metricQueries"):
        draft.put(Metrics=[_query(draft, dict(query)) for query in queries])


def _query(draft: ResourceRequest, query: dict[str, Any]) -> Any:
    """Return a metric query in AWS's shape, with a nested metric."""
    if metric := query.pop("metric", None):
        fields = dict(metric)
        named = {key: fields.pop(key, None) for key in ("namespace", "metricName", "dimensions")}
        query["metricStat"] = {**fields, "metric": named}
    return draft.matched("cloudwatch", "PutMetricAlarm", query, "metricQueries", "Metrics", "[]")


def _budget(draft: ResourceRequest) -> None:
    budget = {
        "BudgetName": draft.need("name"),
        "BudgetType": draft.need("budgetType"),
        "TimeUnit": draft.need("timeUnit"),
        "BudgetLimit": {"Amount": str(draft.need("limitAmount")), "Unit": draft.need("limitUnit")},
        "CostFilters": {item["name"]: item["values"] for item in draft.take("costFilters") or []},
    }
    draft.put(AccountId=draft.take("accountId") or ACCOUNT, Budget=budget)


def _notifications(resource: CreatedResource) -> None:
    budgets = resource.clients("budgets")
    for notification in resource.inputs.get("notifications") or []:
        addresses = [("SNS", arn) for arn in notification.get("subscriberSnsTopicArns") or []]
        addresses += [("EMAIL", address) for address in notification.get("subscriberEmailAddresses") or []]
        budgets.create_notification(
            AccountId=ACCOUNT,
            BudgetName=resource.params["Budget"]["BudgetName"],
            Notification={
                "NotificationType": notification["notificationType"],
                "ComparisonOperator": notification["comparisonOperator"],
                "Threshold": float(notification["threshold"]),
                "ThresholdType": notification["thresholdType"],
            },
            Subscribers=[{"SubscriptionType": kind, "Address": address} for kind, address in addresses],
        )


def _template(draft: ResourceRequest) -> None:
    """Convert Pulumi's lists of targets, actions, parameters and target tags to AWS's mappings."""
    draft.put(
        clientToken=draft.urn[-64:].replace(" ", "-"),
        targets={
            item.pop("name"): _experiment_target(draft, item)
            for item in map(dict, draft.take("targets") or [])
        },
        actions={item.pop("name"): _action(draft, item) for item in map(dict, draft.need("actions"))},
    )


def _experiment_target(draft: ResourceRequest, values: dict[str, Any]) -> Any:
    if tags := values.pop("resourceTags", None):
        values["resourceTags"] = {tag["key"]: tag["value"] for tag in tags}
    return draft.matched("fis", "CreateExperimentTemplate", values, "targets", "targets", "{}")


def _action(draft: ResourceRequest, values: dict[str, Any]) -> Any:
    values["parameters"] = {item["key"]: item["value"] for item in values.pop("parameters", None) or []}
    if target := values.pop("target", None):
        values["targets"] = {target["key"]: target["value"]}
    return draft.matched("fis", "CreateExperimentTemplate", values, "actions", "actions", "{}")


SPECS: dict[str, Spec] = {
    "aws:cloudwatch/metricAlarm:MetricAlarm": Spec(
        "cloudwatch.put_metric_alarm",
        "=AlarmName",
        rename={"name": "AlarmName", "alarmDescription": "AlarmDescription"},
        autoname="name",
        shape=_alarm,
        outputs=lambda resource: {"arn": resource.arn("cloudwatch", f"alarm:{resource.id}")},
    ),
    "aws:cloudwatch/dashboard:Dashboard": Spec(
        "cloudwatch.put_dashboard",
        "=DashboardName",
        tags="none",
        outputs=lambda resource: {"dashboardArn": f"arn:aws:cloudwatch::{ACCOUNT}:dashboard/{resource.id}"},
    ),
    "aws:budgets/budget:Budget": Spec(
        "budgets.create_budget",
        lambda resource: f"{resource.params['AccountId']}:{resource.params['Budget']['BudgetName']}",
        rename={"tags": "ResourceTags"},
        autoname="name",
        shape=_budget,
        after=_notifications,
        takes={"notifications"},
    ),
    "aws:fis/experimentTemplate:ExperimentTemplate": Spec(
        "fis.create_experiment_template",
        "experimentTemplate.id",
        shape=_template,
        outputs=output_paths(arn="experimentTemplate.arn"),
    ),
}

"""The Job controller's action for a finished pod, by the Job's failure policy."""

from __future__ import annotations

from infra.kubernetes.context import Manifest
from infra.kubernetes.pods import CONTAINER


def verdict(job: Manifest, *, disrupted: bool = False, code: int = 0, container: str = CONTAINER) -> str:
    """Return ``done``, the action of the first matching rule, or ``counted`` without one.

    ``code`` is the exit code of ``container``.
    """
    if not disrupted and code == 0:
        return "done"
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        conditions, codes = rule.get("onPodConditions", ()), rule.get("onExitCodes")
        if disrupted and any(condition["type"] == "DisruptionTarget" for condition in conditions):
            return str(rule["action"])
        if (
            codes
            and codes["containerName"] == container
            and codes["operator"] == "In"
            and code in codes["values"]
        ):
            return str(rule["action"])
    return "counted"

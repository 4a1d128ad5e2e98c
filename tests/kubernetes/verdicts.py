"""What the Job controller makes of a pod that ended, by the Job's own policy."""

from __future__ import annotations

from infra.kubernetes.place import Object


def verdict(job: Object, *, disrupted: bool = False, code: int = 0) -> str:
    """``done``, the action of the first rule that fits, or ``counted`` where none does."""
    if not disrupted and code == 0:
        return "done"
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        conditions, codes = rule.get("onPodConditions", ()), rule.get("onExitCodes")
        if disrupted and any(each["type"] == "DisruptionTarget" for each in conditions):
            return str(rule["action"])
        if codes and codes["operator"] == "In" and code in codes["values"]:
            return str(rule["action"])
    return "counted"

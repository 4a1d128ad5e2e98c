"""IAM policy evaluation for tests: that of the local cloud."""

from __future__ import annotations

from pulumi_on_moto.policies import AccessRequest as Request
from pulumi_on_moto.policies import ConditionKeys as Context
from pulumi_on_moto.policies import allowed_actions, allows

__all__ = ["Context", "Request", "allowed_actions", "allows"]

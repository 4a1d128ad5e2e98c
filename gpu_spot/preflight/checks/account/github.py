"""The OIDC identity provider for previews in GitHub Actions; an account has one.

Source: ``CreateOpenIDConnectProvider`` (``EntityAlreadyExists``). A role may trust a provider that does not
exist; then it cannot be assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack

NAME: Final = "GitHub identity provider"

_KEY: Final = "identity.previews.createProvider"
_ISSUER: Final = "token.actions.githubusercontent.com"


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Compare the account with ``identity.previews.createProvider``; without previews no request is made."""
    previews = stack.settings.identity.previews
    if previews is None:
        return
    providers = account.clients("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"]
    exists = any(provider["Arn"].endswith(f":oidc-provider/{_ISSUER}") for provider in providers)
    if exists and previews.create_provider:
        advice = "set it to false, unless this stack created the provider"
        yield CheckResult(_ISSUER, "warning", "already exists; a second one is rejected", advice, _KEY)
    elif not exists and not previews.create_provider:
        advice = "set it to true in one stack of the account"
        yield CheckResult(
            _ISSUER, "failure", "does not exist: the preview role cannot be assumed", advice, _KEY
        )
    else:
        yield CheckResult(_ISSUER, "ok", "exists" if exists else "created by this stack")

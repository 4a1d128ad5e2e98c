"""The identity provider by which GitHub's jobs preview the stack; an account has one for all.

Source: ``CreateOpenIDConnectProvider`` (``EntityAlreadyExists``); a role may trust a provider that is not
there, and then nobody can assume it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.remark import Remark
from gpu_spot.preflight.stack import Stack

NAME: Final = "previews by GitHub"

_ISSUER: Final = "token.actions.githubusercontent.com"


def look(stack: Stack, account: Account) -> Iterator[Remark]:
    """Compare what is there with ``identity.previews.createProvider``; without previews nothing is asked."""
    previews = stack.settings.identity.previews
    if previews is None:
        return
    providers = account.clients("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"]
    is_there = any(one["Arn"].endswith(f":oidc-provider/{_ISSUER}") for one in providers)
    if is_there and previews.create_provider:
        advice = "set identity.previews.createProvider to false, unless this stack made it"
        yield Remark(_ISSUER, "warning", "is there already; a second one is refused", advice)
    elif not is_there and not previews.create_provider:
        advice = "set identity.previews.createProvider to true, in one stack of the account"
        yield Remark(_ISSUER, "failure", "is not there: no job can assume the preview role", advice)
    else:
        yield Remark(_ISSUER, "ok", "is there" if is_there else "is made by this stack")

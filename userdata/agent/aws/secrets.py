"""Read a secret that a stack file names."""

from __future__ import annotations

from typing import Any

from userdata.agent.aws.clients import asking


def read(client: Any, name: str) -> str:
    """Return the text of the secret ``name``, a Secrets Manager secret of this region.

    Raises:
        AgentError: there is none, it may not be read, or it has no text.
    """
    with asking(f"secret {name}"):
        return str(client.get_secret_value(SecretId=name).get("SecretString", ""))

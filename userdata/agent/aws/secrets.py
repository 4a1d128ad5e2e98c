"""Read a secret named in the stack file."""

from __future__ import annotations

from typing import Any

from userdata.agent.aws.clients import aws_errors


def read(client: Any, name: str) -> str:
    """Return the text of the Secrets Manager secret ``name`` in this region.

    Raises:
        AgentError: it does not exist or access is denied.
    """
    with aws_errors(f"secret {name}"):
        return str(client.get_secret_value(SecretId=name).get("SecretString", ""))

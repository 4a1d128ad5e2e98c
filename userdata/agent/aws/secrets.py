"""Read a secret that a stack file names."""

from __future__ import annotations

from typing import Any

from userdata.agent.aws import clients


def read(client: Any, name: str) -> str:
    """Return the text of the secret ``name``, a Secrets Manager secret of this region.

    Raises:
        AgentError: there is none, it may not be read, or it has no text.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        text = client.get_secret_value(SecretId=name).get("SecretString", "")
    except (BotoCoreError, ClientError, RuntimeError) as error:  # of credentials, as in the registry
        raise clients.as_agent_error(f"secret {name}", error) from None
    return str(text)

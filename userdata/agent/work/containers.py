"""What the agent's containers have in common: a pinned image, its way here, and few rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from userdata.agent.machine.host import Host

CONFINED: Final = (
    *("--read-only", "--tmpfs", "/tmp"),  # noqa: S108 - in there
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
)
"""Options of ``docker run``: nothing to write but memory, no privileges and no way to them."""


def gpu(name: int | str) -> tuple[str, str]:
    """Return the options that hand a GPU over, by index or UUID: the container toolkit's CDI names."""
    return "--device", f"nvidia.com/gpu={name}"


def pull(host: Host, image: str, password: Callable[[], str]) -> None:
    """Pull an image; one in ECR after a login, whose password goes through standard input.

    Raises:
        AgentError: the registry refused or cannot be reached.
    """
    if ".dkr.ecr." in image:
        login = ["docker", "login", "--username", "AWS", "--password-stdin", image.split("/")[0]]
        host.run(login, stdin=password())
    host.run(["docker", "pull", "--quiet", image])

"""Checkout of a job's code: the pinned revision, optionally with submodules, also from private repositories.

Git runs as a separate user in a new directory, whose owner becomes the job's user when it is complete. So
hooks and settings of an earlier run cannot affect git, and the job's user cannot read git's credentials in a
process, file or log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from contracts.agent.config import Training
from contracts.agent.names import GIT_USER
from userdata.agent.machine import accounts
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import LOAD, QUICK, SLOW, Host

_DEFAULT_USER: Final = "x-access-token"
"""User name for a token alone. Source: GitHub's guide on tokens; GitLab accepts any name (GitLab's guide)."""

# A shell function, so that no command line shows the secret; git adds the operation as an argument.
_HELPER: Final = (
    '!f() { if [ "$1" = get ]; then printf "username=%s\\npassword=%s\\n" '
    '"$GPU_SPOT_GIT_USER" "$GPU_SPOT_GIT_PASSWORD"; fi; }; f'
)


@dataclass(frozen=True)
class Credentials:
    """Login for a repository's host."""

    user: str
    password: str = field(repr=False)


def credentials(name: str, text: str) -> Credentials:
    """Parse the text of the secret ``name``: ``TOKEN`` or ``USER:TOKEN``.

    Raises:
        AgentError: it has another form; the message does not contain it.
    """
    user, colon, password = text.strip().rpartition(":")
    if not password or text.lstrip().startswith("{") or not text.strip().isprintable() or " " in password:
        raise AgentError(f"secret {name} is malformed; store TOKEN or USER:TOKEN, as plain text")
    return Credentials(user if colon else _DEFAULT_USER, password)


def checkout(host: Host, training: Training, directory: Path, login: Credentials | None = None) -> None:
    """Replace ``directory`` by the pinned revision, owned by the job's user.

    Only the revision is fetched, by its id, and verified afterwards. ``login`` is sent to the repository's
    host only, for submodules on that host as well.

    Raises:
        AgentError: git failed, or the result is another revision.
    """
    new = directory.with_name(f".{directory.name}.new")
    git = ["runuser", "--user", GIT_USER, "--", "git", "-C", str(new)]
    plain = {**training.environment, **_settings(training.repository)}
    remote = {**training.environment, **_settings(training.repository, login)}
    accounts.add_system_user(host, GIT_USER, "--no-create-home")
    host.run(["rm", "--recursive", "--force", str(new)], SLOW)
    host.run(["install", "--directory", f"--owner={GIT_USER}", str(new)], QUICK)
    host.run([*git, "init", "--quiet"], QUICK, environment=plain)
    # A named remote: a submodule's URL may be relative to it.
    host.run([*git, "remote", "add", "origin", training.repository], QUICK, environment=plain)
    host.run([*git, "fetch", "--quiet", "--depth=1", "origin", training.revision], LOAD, environment=remote)
    host.run([*git, "checkout", "--quiet", "--detach", training.revision], SLOW, environment=plain)
    head = host.run([*git, "rev-parse", "HEAD"], QUICK, environment=plain).strip()
    if head != training.revision:
        raise AgentError(f"{training.repository} was checked out at {head}, not at {training.revision}")
    if training.submodules:
        update = ["submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"]
        host.run([*git, *update], LOAD, environment=remote)
    host.run(["chown", "--recursive", "--no-dereference", f"{training.user}:", str(new)], SLOW)
    host.run(["rm", "--recursive", "--force", str(directory)], SLOW)
    host.run(["mv", "--no-target-directory", str(new), str(directory)], SLOW)


def _settings(repository: str, login: Credentials | None = None) -> Mapping[str, str]:
    """Return git's settings: no configuration files, no prompts, stalled transfers abort."""
    url = urlsplit(repository)
    pairs = [
        # A submodule may have any URL: allow only the repository's own protocol.
        ("protocol.allow", "never"),
        (f"protocol.{url.scheme}.allow", "always"),
        ("http.lowSpeedLimit", "1000"),
        ("http.lowSpeedTime", "60"),
        ("credential.helper", ""),
    ]
    secret: dict[str, str] = {}
    if login:
        pairs.append((f"credential.{url.scheme}://{url.netloc}.helper", _HELPER))
        secret = {"GPU_SPOT_GIT_USER": login.user, "GPU_SPOT_GIT_PASSWORD": login.password}
    return {
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(pairs)),
        **{f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(pairs)},
        **{f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(pairs)},
        **secret,
    }

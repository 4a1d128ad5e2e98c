"""Bring a job's code here: the pinned revision, its submodules where wanted, from private repositories too.

Git runs as a user of its own in a folder that is new each time, which is handed over to the job's user when
all is there. So no hook and no setting of an earlier run of the job decides what git does, and what git is
told in confidence is in no process, file or log that the job's user can read.
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
from userdata.agent.machine.host import Host

_DEFAULT_USER: Final = "x-access-token"
"""For a token by itself: GitHub's name for it; GitLab takes any (their guides on tokens)."""

# In the shell's own words, so that no command line shows the secret; git adds the operation as an argument.
_HELPER: Final = (
    '!f() { if [ "$1" = get ]; then printf "username=%s\\npassword=%s\\n" '
    '"$GPU_SPOT_GIT_USER" "$GPU_SPOT_GIT_PASSWORD"; fi; }; f'
)


@dataclass(frozen=True)
class Credentials:
    """What a repository's host wants to see."""

    user: str
    password: str = field(repr=False)


def credentials(name: str, text: str) -> Credentials:
    """Read ``TOKEN`` or ``USER:TOKEN``, the text of the secret ``name``.

    Raises:
        AgentError: it is something else; the text is not in the message.
    """
    user, colon, password = text.strip().rpartition(":")
    if not password or text.lstrip().startswith("{") or not text.strip().isprintable() or " " in password:
        raise AgentError(f"secret {name}: neither allowed form: TOKEN or USER:TOKEN, as plain text")
    return Credentials(user if colon else _DEFAULT_USER, password)


def checkout(host: Host, training: Training, directory: Path, login: Credentials | None = None) -> None:
    """Put the pinned revision into ``directory``, in the place of what was there, owned by the job's user.

    The revision is fetched by its id and nothing else, and checked afterwards. ``login`` is shown to the
    repository's own host only, to whatever submodule is there as well.

    Raises:
        AgentError: git failed, or what came is not the revision.
    """
    new = directory.with_name(f".{directory.name}.new")
    git = ["runuser", "--user", GIT_USER, "--", "git", "-C", str(new)]
    plain = {**training.environment, **_settings(training.repository)}
    remote = {**training.environment, **_settings(training.repository, login)}
    accounts.add(host, GIT_USER, "--no-create-home")
    host.run(["rm", "--recursive", "--force", str(new)])
    host.run(["install", "--directory", f"--owner={GIT_USER}", str(new)])
    host.run([*git, "init", "--quiet"], environment=plain)
    # By name: a submodule's address may be relative to it.
    host.run([*git, "remote", "add", "origin", training.repository], environment=plain)
    host.run([*git, "fetch", "--quiet", "--depth=1", "origin", training.revision], environment=remote)
    host.run([*git, "checkout", "--quiet", "--detach", training.revision], environment=plain)
    found = host.run([*git, "rev-parse", "HEAD"], environment=plain).strip()
    if found != training.revision:
        raise AgentError(f"{training.repository}: got {found}; wanted {training.revision}")
    if training.submodules:
        update = ["submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"]
        host.run([*git, *update], environment=remote)
    host.run(["chown", "--recursive", "--no-dereference", f"{training.user}:", str(new)])
    host.run(["rm", "--recursive", "--force", str(directory)])
    host.run(["mv", "--no-target-directory", str(new), str(directory)])


def _settings(repository: str, login: Credentials | None = None) -> Mapping[str, str]:
    """Return git's settings: no files count, nobody is asked, a stalled transfer ends."""
    place = urlsplit(repository)
    pairs = [
        # A submodule may name any address: only what the repository itself came by.
        ("protocol.allow", "never"),
        (f"protocol.{place.scheme}.allow", "always"),
        ("http.lowSpeedLimit", "1000"),
        ("http.lowSpeedTime", "60"),
        ("credential.helper", ""),
    ]
    secret: dict[str, str] = {}
    if login:
        pairs.append((f"credential.{place.scheme}://{place.netloc}.helper", _HELPER))
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

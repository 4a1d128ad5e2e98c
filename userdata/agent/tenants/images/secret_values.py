"""Values of a tenant's secrets: environment variables, and the login for its image's registry.

Errors name the secret and what is wrong; no value is logged or part of a command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from contracts import limits
from contracts.codec import parse
from contracts.stored import ContractError
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, Host
from userdata.agent.tenants.model import Tenant
from userdata.agent.work import containers

_LOGIN: Final = {"username", "password"}


@dataclass(frozen=True)
class TenantSecrets:
    """The secrets of tenants.

    Args:
        read: returns the text of a secret; raises `AgentError`.
        ecr_password: returns the password of ECR in a region.
        directory: in memory and root's, for the registries' credentials while an image is pulled.
    """

    read: Callable[[str], str]
    ecr_password: Callable[[str], str]
    directory: Path

    def variables(self, tenant: Tenant) -> dict[str, str]:
        """Return the environment variables in a tenant's secret, none without one.

        Raises:
            AgentError: it cannot be read, is not a JSON object of texts, or has a name that is invalid,
                reserved, or in the tenant's ``environment``.
        """
        if tenant.secret is None:
            return {}
        values = self._object(tenant.secret)
        for name in values:
            if name.startswith(limits.RESERVED_VARIABLES) or name in tenant.environment:
                raise AgentError(
                    f"secret {tenant.secret} has the variable {name}; use names that are neither reserved "
                    f"nor in environment of {tenant.name!r}"
                )
        return values

    @contextmanager
    def docker(self, host: Host, tenant: Tenant) -> Iterator[list[str]]:
        """Yield the Docker command that may pull a tenant's image; its login ends with the block.

        The secret has the format of ECS. Source: ECS guide, "Using non-AWS container images in Amazon ECS".

        Raises:
            AgentError: the secret cannot be read or has another format, or the registry rejected the login.
        """
        if tenant.registry_secret is None:
            containers.log_in(host, tenant.image, self.ecr_password)
            yield ["docker"]
            return
        values = self._object(tenant.registry_secret)
        if values.keys() != _LOGIN:
            raise AgentError(
                f"secret {tenant.registry_secret} has other members; use only {' and '.join(sorted(_LOGIN))}"
            )
        with TemporaryDirectory(dir=self.directory, prefix="registry-") as directory:
            docker = ["docker", "--config", directory]
            login = [*docker, "login", "--username", values["username"], "--password-stdin"]
            host.run([*login, *_registry(tenant.image)], QUICK, stdin=values["password"])
            yield docker

    def _object(self, name: str) -> dict[str, str]:
        text = self.read(name)
        try:
            return {**parse(limits.Environment, json.loads(text))}
        except ContractError as error:
            # Its message has the value; what is not a name may be one.
            raise _malformed(name, f" at {error.path}" if error.path.isidentifier() else "") from None
        except (ValueError, RecursionError):
            raise _malformed(name, "") from None


def _malformed(name: str, where: str) -> AgentError:
    return AgentError(
        f"secret {name} is malformed{where}; store a JSON object of texts without control "
        "characters, by names of environment variables"
    )


def _registry(image: str) -> list[str]:
    """Return the host of an image's registry, none for Docker Hub: as Docker parses names.

    Source: github.com/distribution/reference, ``splitDockerDomain``.
    """
    domain, slash, _ = image.partition("/")
    is_domain = bool(slash) and (domain == "localhost" or "." in domain or ":" in domain)
    return [domain] if is_domain else []

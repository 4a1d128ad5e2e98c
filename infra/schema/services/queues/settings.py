"""The base of the settings of all kinds of queues."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from contracts.agent import config as agent
from infra.schema.base import Model
from userdata.agent.aws.permissions import Need

MaxMessageAgeSeconds: TypeAlias = Annotated[int, Field(ge=60, le=604_800)]
"""Age of the oldest waiting message above which an alarm is raised."""


class QueueSettings(Model):
    """A queue. The model of each kind also has ``kind``, ``existing`` and ``max_message_age_seconds``."""

    title: ClassVar[str]
    """Name of the kind in messages."""
    has_secret: ClassVar[bool]
    """Whether workers connect with a URL from a secret; else with their IAM role."""
    need: ClassVar[Need]
    """What the network and the instances of its workers need."""
    called_by_functions: ClassVar[tuple[str, ...]]
    """Services of AWS that the functions in the VPC call for it."""

    @property
    def broker_of(self) -> str | None:
        """The service whose created broker has the queue; None for its own or one outside the stack."""
        return None

    @property
    def called_services(self) -> tuple[str, ...]:
        """The services on the same broker to which the workers send requests."""
        return ()

    @property
    def creates_broker(self) -> bool:
        """Whether the stack creates a broker that other services can share."""
        return False

    def queue_name(self, service: str) -> str:
        """Return the name of the queue of ``service`` on a broker that services can share."""
        return service

    @property
    def max_waiting(self) -> int:
        """Maximum number of waiting messages; 0: no limit."""
        return 0

    @property
    def source_security_groups(self) -> tuple[str, ...]:
        """Security groups that may connect to it, in addition to the workers."""
        return ()

    @abstractmethod
    def for_workers(self, service: str, attributes: Mapping[str, str]) -> agent.Queue:
        """Return the queue of ``service`` in the format of the node agent.

        ``attributes`` are those of ``DeclaredQueue.attributes``.
        """

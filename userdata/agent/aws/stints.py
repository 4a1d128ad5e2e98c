"""A job's history in the job table: an item for each stint, the time for which one instance had the job.

Its key is ``<job>#<nn>``, the lease's token modulo 100: the last hundred stay, nothing expires, and who knows
the token finds all of them without a search. Only the stint's own instance writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from contracts.agent.names import JOB_KEY
from userdata.agent.aws.clients import as_agent_error

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT: Final = 100

StintEnd: TypeAlias = Literal["done", "failed", "host fault", "notice", "hand-over", "silent"]
"""How a stint ended by its own words. ``notice``: AWS took the instance; ``hand-over``: anybody else told it
to end; ``silent``: it has said nothing of an end, and lives or is lost."""


@dataclass(frozen=True)
class Stint:
    """One instance's time with a job, as it tells itself. Times are epoch seconds, 0: not (yet).

    The instance was ``launched``, ``began`` to run the job when its volume was there, ``started`` the command
    from a checkpoint of the time ``resumed`` (0: from none), was ``told`` to give it up (``cause``: the
    notice's kind), the command ``stopped``, and the run ``ended`` (``end``: how). At ``seen`` it was alive,
    and ``checkpoint`` was the time of the newest. The command was started ``starts`` times, the last time at
    ``restarted``; what failed before had done ``lost`` seconds of work in vain. ``market`` is the metadata
    service's word, such as ``spot``.
    """

    token: int
    revision: str
    instance: str
    instance_type: str
    zone: str
    market: str
    side: str
    launched: float
    began: float
    seen: float
    started: float = 0.0
    restarted: float = 0.0
    starts: int = 0
    resumed: float = 0.0
    checkpoint: float = 0.0
    lost: float = 0.0
    told: float = 0.0
    cause: str = ""
    stopped: float = 0.0
    ended: float = 0.0
    end: str = ""

    @property
    def fate(self) -> StintEnd:
        """How it ended, by its own words."""
        if self.end in ("done", "failed"):
            return "done" if self.end == "done" else "failed"
        if self.end == "host":
            return "host fault"
        if self.told and self.cause == "spot":
            return "notice"
        return "hand-over" if self.ended or self.told else "silent"


_TEXTS: Final = frozenset(one.name for one in fields(Stint) if one.type == "str")


def key(job: str, token: int) -> dict[str, Any]:
    """Return the key of a stint's item."""
    return {JOB_KEY: {"S": f"{job}#{token % KEPT:02d}"}}


def dump(job: str, stint: Stint) -> dict[str, Any]:
    """Return a stint's whole item."""
    values = ((one.name, getattr(stint, one.name)) for one in fields(Stint))
    return {
        **key(job, stint.token),
        **{name: {"S": value} if name in _TEXTS else {"N": f"{value:.13g}"} for name, value in values},
    }


def parse(item: Mapping[str, Any]) -> Stint:
    """Return the stint of an item; raise ``ValueError`` for one that nobody of ours writes."""
    try:
        told = {one.name: item[one.name] for one in fields(Stint)}
        return Stint(**{name: _value(name, value) for name, value in told.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"malformed stint in the job table: {error!r}") from None


def _value(name: str, value: Mapping[str, str]) -> Any:
    if name in _TEXTS:
        return value["S"]
    return int(value["N"]) if name in ("token", "starts") else float(value["N"])


class StintTable:
    """One job's stints, for the instance that has it."""

    def __init__(self, dynamodb: DynamoDBClient, table: str, job: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._job = job

    def read(self, token: int) -> Stint | None:
        """Return what has been written of a stint; None where nothing was.

        Raises:
            AgentError: the table does not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            item = self._dynamodb.get_item(
                TableName=self._table, Key=key(self._job, token), ConsistentRead=True
            ).get("Item")
            found = parse(item) if item else None
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, history of {self._job}", error) from None
        except ValueError:
            return None
        return found if found and found.token == token else None

    def write(self, stint: Stint) -> None:
        """Write all of a stint.

        Raises:
            AgentError: the table does not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._dynamodb.put_item(TableName=self._table, Item=dump(self._job, stint))
        except (BotoCoreError, ClientError) as error:
            raise as_agent_error(f"job table {self._table}, history of {self._job}", error) from None

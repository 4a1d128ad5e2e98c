"""An operator's side of an SQS queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from spot_work.command.inspector import DeadLetter, QueueInspector, QueueStatus
from spot_work.errors import BrokerRefusedError
from spot_work.queue.settings import Queue
from spot_work.sqs import wire
from spot_work.sqs.address import CALL_ERRORS, NO_DEAD_LETTERS, Address, describe, is_permanent
from spot_work.sqs.visibility import batches, extend

log: Final = logging.getLogger("spot_work")

_WAITING: Final = "ApproximateNumberOfMessages"
_IN_WORK: Final = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: Final = "ApproximateNumberOfMessagesDelayed"
_POLL_SECONDS: Final = 2
"""Duration of a long poll: it asks all servers, so an empty one is the end."""
_HIDDEN_SECONDS: Final = 300
"""How long a listed dead letter stays hidden if it is not made visible again."""


class SqsInspector(QueueInspector):
    """See `QueueInspector`.

    SQS says neither how many workers there are nor how long its oldest message has waited. Dead letters are
    received, hidden for as long as the listing takes, and made visible again; standard queues have no order.

    Args:
        url: ``sqs://region/account``.
        client: a boto3 client, for tests.

    Raises:
        ValueError: the URL cannot be parsed, or the queue's name is invalid.
    """

    def __init__(self, url: str, queue: Queue, client: Any = None) -> None:
        self._address = Address.parse(url, queue.name)
        self._queue = queue
        self._client = client or self._address.client()

    def status(self) -> QueueStatus:
        """See `QueueInspector`; a dead-letter queue that the caller may not see is unknown."""
        with self._errors():
            url = self._address.queue_url(self._client, self._queue.name)
            attributes = self._attributes(url, _WAITING, _IN_WORK, _DELAYED, "RedrivePolicy")
            dead_letters = None
            try:
                dead = self._attributes(self._dead_letter_url(attributes), _WAITING, _IN_WORK)
                dead_letters = int(dead[_WAITING]) + int(dead[_IN_WORK])
            except BrokerRefusedError:
                pass
            except CALL_ERRORS as error:
                if not is_permanent(error):
                    raise
        waiting = int(attributes[_WAITING]) + int(attributes[_DELAYED])
        return QueueStatus(self._queue.name, waiting, int(attributes[_IN_WORK]), None, None, dead_letters)

    def _visit(self, is_selected: Callable[[str], bool]) -> Iterator[tuple[DeadLetter, bool]]:
        """Send the selected dead letters again; yield all, and whether each was sent."""
        receipts: dict[str, str] = {}
        with self._errors():
            url = self._address.queue_url(self._client, self._queue.name)
            dead_url = self._dead_letter_url(self._attributes(url, "RedrivePolicy"))
            if "RedrivePolicy" in self._attributes(dead_url, "RedrivePolicy"):
                # Each listing is a delivery: SQS would move them on.
                text = "it has a redrive policy; use a dead-letter queue without one"
                raise BrokerRefusedError(f"{dead_url.rpartition('/')[2]}: {text}")
            try:
                for received in self._receive_all(dead_url, receipts):
                    letter = wire.read_dead_letter(received)
                    is_sent = is_selected(letter.id)
                    if is_sent:
                        self._client.send_message(QueueUrl=url, **wire.resend(received))
                        receipt = receipts.pop(received["MessageId"])
                        self._client.delete_message(QueueUrl=dead_url, ReceiptHandle=receipt)
                    yield letter, is_sent
            finally:
                self._show_again(dead_url, receipts)

    def _receive_all(self, url: str, receipts: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield each message once; ``receipts`` has the newest receipt of each by its id."""
        listed: set[str] = set()
        while True:
            response = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=wire.MAX_BATCH_ENTRIES,
                WaitTimeSeconds=_POLL_SECONDS,
                VisibilityTimeout=_HIDDEN_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            messages = response.get("Messages", ())
            new = [message for message in messages if message["MessageId"] not in listed]
            receipts |= {message["MessageId"]: message["ReceiptHandle"] for message in messages}
            for message in new:
                if message["MessageId"] not in listed:
                    listed.add(message["MessageId"])
                    yield message
            if not new:
                return

    def _show_again(self, url: str, receipts: Mapping[str, str]) -> None:
        """Make messages visible; those of which SQS refuses it are visible after `_HIDDEN_SECONDS`."""
        for batch in batches(list(receipts.values())):
            try:
                extend(self._client, url, 0, batch)
            except CALL_ERRORS as error:
                log.warning("%s: hidden for %d s: %s", url, _HIDDEN_SECONDS, describe(error))

    def _attributes(self, url: str, *names: str) -> dict[str, str]:
        response = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names))
        return dict(response.get("Attributes", {}))

    def _dead_letter_url(self, attributes: Mapping[str, str]) -> str:
        if not attributes.get("RedrivePolicy"):
            raise BrokerRefusedError(f"{self._queue.name}: {NO_DEAD_LETTERS}")
        return self._address.dead_letter_url(self._client, attributes["RedrivePolicy"])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Make this package's errors of those of SQS."""
        try:
            yield
        except CALL_ERRORS as error:
            text = f"{self._queue.name}: {describe(error)}"
            raise BrokerRefusedError(text) if is_permanent(error) else ConnectionError(text) from None

"""What can go wrong, for those who ask and for those who answer."""

from __future__ import annotations


class WorkError(Exception):
    """The base of all that this package raises; as an answer: what the worker's function raised, in words."""


class QueueFullError(WorkError):
    """The queue has reached its greatest length and refused the request: nobody has it."""


class ExpiredError(WorkError, TimeoutError):
    """Nobody answered in time. Whether a worker has run it, or still will, is not known."""


class LostError(WorkError):
    """The client was closed before an answer came."""


class BrokerRefusedError(WorkError):
    """The broker refuses credentials, permissions or the declaration of a queue: to try again is no use."""


class HandBack(Exception):  # noqa: N818 - no error: a worker's function raises it on purpose
    """A function raises it, or returns it for a request: another worker shall try. It counts as a try."""

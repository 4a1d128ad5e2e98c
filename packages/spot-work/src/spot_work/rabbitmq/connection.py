"""What pika cannot decode or encode, as distinct from a connection that broke, and what it rejects."""

from __future__ import annotations

import struct
from typing import Any, Final

import pika
from pika import spec
from pika.frame import Header

UNREADABLE: Final = "spot-unreadable"
"""Header with the decoder's error, the only one of a message whose headers cannot be decoded."""
_FRAME: Final = struct.Struct(">BHL")  # type, channel and size of a frame
_BODY_SIZE: Final = struct.Struct(">4xQ")  # in a header's payload, after class and weight


class _Channel(pika.channel.Channel):  # type: ignore[misc]
    """A channel that takes what the broker delivers until it has confirmed that a consumer is cancelled.

    pika rejects it, which the broker counts as a failure of each request.
    """

    def _on_deliver(self, method: Any, header: Any, body: bytes) -> None:
        if (on_message := self._consumers.get(method.method.consumer_tag)) is None:
            super()._on_deliver(method, header, body)
        else:
            on_message(self, method.method, header.properties, body)


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """A connection that survives headers that pika cannot decode, such as a time in milliseconds.

    pika closes the connection for them, and the broker delivers the message and all its neighbours again.
    """

    def _create_channel(self, number: int, on_open: Any) -> _Channel:
        return _Channel(self, number, on_open)

    def _read_frame(self) -> Any:
        try:
            return super()._read_frame()
        except Exception as error:
            kind, channel, size = _FRAME.unpack_from(self._frame_buffer)
            if kind != spec.FRAME_HEADER:
                raise
            (body_size,) = _BODY_SIZE.unpack_from(self._frame_buffer, _FRAME.size)
            properties = pika.BasicProperties(headers={UNREADABLE: repr(error)})
            return _FRAME.size + size + spec.FRAME_END_SIZE, Header(channel, body_size, properties)


def can_encode(routing_key: str, properties: pika.BasicProperties | None) -> bool:
    """Return whether AMQP can express a message's routing key and properties."""
    try:
        spec.Basic.Publish(routing_key=routing_key).encode()
        (properties or pika.BasicProperties()).encode()
    except Exception:
        return False
    return True

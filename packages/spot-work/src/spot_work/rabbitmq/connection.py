"""What pika cannot decode or encode, as distinct from a connection that broke."""

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


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """A connection that survives headers that pika cannot decode, such as a time in milliseconds.

    pika closes the connection for them, and the broker delivers the message and all its neighbours again.
    """

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

"""What pika cannot decode or encode, as distinct from a connection that broke, and what it rejects."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any, Final

import pika
from pika import spec
from pika.frame import Header

UNREADABLE: Final = "spot-unreadable"
"""Header with the decoder's error, the only one of a message whose headers cannot be decoded."""
_FRAME: Final = struct.Struct(">BHL")  # type, channel and size of a frame
_BODY_SIZE: Final = struct.Struct(">4xQ")  # in a header's payload, after class and weight


class _Channel(pika.channel.Channel):  # type: ignore[misc]
    """A channel whose consumers can be cancelled without a loss."""

    def cancel(self, tag: str) -> None:
        """Cancel a consumer before whatever is sent next; take what is delivered until it is confirmed.

        pika waits for the answer to the call before, and rejects what is delivered meanwhile, which
        the broker counts as a failure of each request.
        """
        arguments = {"consumer_tag": tag}
        self.callbacks.add(self.channel_number, spec.Basic.CancelOk, self._on_cancelok, arguments=arguments)
        self._send_method(spec.Basic.Cancel(tag))


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """A connection that survives headers that pika cannot decode, such as a time in milliseconds.

    pika closes the connection for them, and the broker delivers the message and all its neighbours again.
    """

    _unsent: list[bytes] | None = None

    @contextlib.contextmanager
    def one_write(self) -> Iterator[None]:
        """Send the frames of this context together at its end: pika makes a system call for each."""
        if self._unsent is not None:  # in another such context, which sends them
            yield
            return
        self._unsent = []
        try:
            yield
        finally:
            unsent, self._unsent = self._unsent, None
            if unsent and self._transport is not None:
                super()._adapter_emit_data(b"".join(unsent))

    def _on_data_available(self, data: bytes) -> None:
        with self.one_write():  # of the answers to what arrived together
            super()._on_data_available(data)

    def _adapter_emit_data(self, data: bytes) -> None:
        if self._unsent is None:
            super()._adapter_emit_data(data)
        else:
            self._unsent.append(data)

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

"""The agent's end of a session of a port: connections of its user, multiplexed over one data channel.

Source: github.com/aws/amazon-ssm-agent, ``agent/session/plugins/port/port_mux.go``; the frames are smux 1
(github.com/xtaci/smux, ``frame.go``).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final

from tests.tenants import session_messages as messages

CONNECT_TO_PORT_ERROR: Final = 3
_OPEN, _END, _DATA = 0, 1, 2
# Version, command, length, connection.
_HEADER: Final = struct.Struct("<BBHI")
_BYTES: Final = 1024 - _HEADER.size
"""Of a connection in a message: ``StreamDataPayloadSize`` of the agent with a header."""


class Ports:
    """Connections to a ``port`` of the instance; ``say`` sends a payload of a type to the plugin."""

    def __init__(self, port: int, say: Callable[[int, bytes], None]) -> None:
        self._port, self._say = port, say
        self._connections: dict[int, socket.socket] = {}
        self._received = b""

    def receive(self, data: bytes) -> None:
        """Take a part of the stream of frames."""
        self._received += data
        while len(self._received) >= _HEADER.size:
            version, command, size, id_ = _HEADER.unpack_from(self._received)
            assert version == 1
            if len(self._received) < _HEADER.size + size:
                return
            payload = self._received[_HEADER.size : _HEADER.size + size]
            self._received = self._received[_HEADER.size + size :]
            self._process(command, id_, payload)

    def _process(self, command: int, id_: int, payload: bytes) -> None:
        if command == _OPEN:
            self._open(id_)
        elif connection := self._connections.get(id_):
            with contextlib.suppress(OSError):  # the port's program has gone
                if command == _DATA:
                    connection.sendall(payload)
                elif command == _END:  # also of a user that only ends its own half: ``handleDataTransfer``
                    connection.shutdown(socket.SHUT_RDWR)

    def _open(self, id_: int) -> None:
        try:
            connection = socket.create_connection(("localhost", self._port))
        except OSError:
            self._say(messages.FLAG, CONNECT_TO_PORT_ERROR.to_bytes(4, "big"))
            self._frame(_END, id_)
            return
        self._connections[id_] = connection
        threading.Thread(target=self._answer, args=(id_, connection), daemon=True).start()

    def _answer(self, id_: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # reset, or the plugin has gone
            while data := connection.recv(_BYTES):
                self._frame(_DATA, id_, data)
        del self._connections[id_]
        with contextlib.suppress(OSError):
            self._frame(_END, id_)

    def _frame(self, command: int, id_: int, payload: bytes = b"") -> None:
        self._say(messages.DATA, _HEADER.pack(1, command, len(payload), id_) + payload)

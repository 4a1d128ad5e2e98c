"""The messages of a Session Manager session: the format that its plugin and its agent share.

Source: github.com/aws/session-manager-plugin, ``src/message/clientmessage.go`` (fields, lengths, payload
types), ``src/datachannel/streaming.go`` (order of messages).
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from dataclasses import dataclass
from typing import Any, Final

INPUT: Final = "input_stream_data"
OUTPUT: Final = "output_stream_data"
ACKNOWLEDGE: Final = "acknowledge"
CLOSED: Final = "channel_closed"

DATA: Final = 1
SIZE: Final = 3
HANDSHAKE_REQUEST: Final = 5
HANDSHAKE_RESPONSE: Final = 6
HANDSHAKE_COMPLETE: Final = 7
FLAG: Final = 10

# Header length, type, schema, milliseconds, sequence number, flags, id, SHA-256, payload's type and length.
_HEADER: Final = struct.Struct(">I32sIQqQ16s32sII")
_HEADER_LENGTH: Final = _HEADER.size - 4  # without the payload's length


@dataclass(frozen=True)
class Message:
    """A message; ``kind`` is its type, ``content`` the type of its payload."""

    kind: str
    sequence: int
    content: int
    payload: bytes
    id: uuid.UUID

    @classmethod
    def of(cls, kind: str, sequence: int, content: int, payload: bytes | dict[str, Any]) -> Message:
        """Make a message with a random id; a dictionary becomes JSON."""
        text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return cls(kind, sequence, content, text, uuid.uuid4())

    @classmethod
    def parse(cls, data: bytes) -> Message:
        """Read a message; its lengths, its digest and its type must be right."""
        length, kind, schema, _, sequence, _, id_, digest, content, size = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        assert (length, schema, size) == (_HEADER_LENGTH, 1, len(payload))
        assert digest == hashlib.sha256(payload).digest()
        # The two halves of an id change places: ``putUuid`` in ``messageparser.go``.
        return cls(kind.decode().strip(" \0"), sequence, content, payload, uuid.UUID(bytes=id_[8:] + id_[:8]))

    def packed(self, milliseconds: int) -> bytes:
        """Return the message as bytes, created at a time since 1970."""
        id_, digest = self.id.bytes, hashlib.sha256(self.payload).digest()
        header = _HEADER.pack(
            _HEADER_LENGTH,
            self.kind.encode().ljust(32),
            1,
            milliseconds,
            self.sequence,
            0,
            id_[8:] + id_[:8],
            digest,
            self.content,
            len(self.payload),
        )
        return header + self.payload

    def acknowledged(self) -> Message:
        """Return the message that acknowledges this one."""
        said = {
            "AcknowledgedMessageType": self.kind,
            "AcknowledgedMessageId": str(self.id),
            "AcknowledgedMessageSequenceNumber": self.sequence,
            "IsSequentialMessage": True,
        }
        return Message.of(ACKNOWLEDGE, 0, 0, said)

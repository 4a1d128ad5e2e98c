"""Request signatures without hashes: moto reads only key, region and service."""

from __future__ import annotations

from typing import Any, Final

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth, SigV4QueryAuth
from botocore.compat import get_current_datetime
from botocore.exceptions import NoCredentialsError

from pulumi_on_moto.fixes.fix import Patch

_SIGNATURE: Final = "0" * 64
_sign = SigV4Auth.add_auth


def _scoped(signer: Any, request: Any) -> None:
    """Write the headers of Signature Version 4 without computing hashes; presigned URLs are signed."""
    if isinstance(signer, SigV4QueryAuth):
        _sign(signer, request)
        return
    if signer.credentials is None:
        raise NoCredentialsError
    request.context["timestamp"] = get_current_datetime().strftime(SIGV4_TIMESTAMP)
    signer._modify_request_before_signing(request)
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders=host, Signature={_SIGNATURE}"
    )


SIGNATURES: Final[Patch] = (SigV4Auth, "add_auth", _scoped)

"""A deployed stack on a moto server.

``python -m tests.commands.served FOLDER STACK IMAGE`` prints its address, and serves until its standard input
is closed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final
from unittest import mock

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, BaseResponse

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import sandbox
from pulumi_on_moto.running import server
from rehearsal.commands.deployed import deployed


class DeniedError(ServiceException):
    code = "AccessDenied"


def deny_unsupported(response: BaseResponse) -> Any:
    """Deny operations that moto does not implement, as missing permissions."""
    try:
        return CALL_ACTION(response)
    except (NotImplementedError, ModuleNotFoundError) as error:
        return response.serialized(ActionResult(DeniedError(str(error))))


CALL_ACTION: Final = BaseResponse.call_action


def serve(folder: Path, stack: str, image: str) -> None:
    config = load(folder, stack)
    with mock.patch.object(BaseResponse, "call_action", deny_unsupported), sandbox(config.region) as clients:
        clients("ssm").put_parameter(Name="/images/mine", Value=image, Type="String")
        deployed(clients, config)
        with server.serve() as endpoint:
            sys.stdout.write(f"{endpoint}\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), *sys.argv[2:])

"""Serve the local cloud over HTTP for inspection with the AWS CLI."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from pulumi_on_moto.errors import LocalCloudError


@contextlib.contextmanager
def serve(port: int = 0) -> Iterator[str]:
    """Serve the running sandbox over HTTP on this machine only; yield the endpoint's URL.

    The server shares the state of the sandbox, which must stay open. Port 0: a free port.

    Raises:
        LocalCloudError: the port is in use.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    try:
        server.start()
        host, bound = server.get_host_and_port()
    except (OSError, SystemExit) as error:
        raise LocalCloudError(f"port {port} cannot be served: {error}") from None
    try:
        yield f"http://{host}:{bound}"
    finally:
        server.stop()


def command_line(endpoint: str, region: str) -> str:
    """Return a shell command that inspects a served local cloud."""
    return (
        f"AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_DEFAULT_REGION={region} "
        f"aws --endpoint-url {endpoint} autoscaling describe-auto-scaling-groups"
    )

"""The worker's pod: in a cluster that is to end workers, one without work goes first.

Kubernetes deletes of a ReplicaSet's pods those with the lowest deletion cost first (Kubernetes, "ReplicaSet",
pod deletion cost). The pod's account must be allowed to patch the pod.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from spot_work.queue import threads
from spot_work.queue.backoff import RANDOM

log: Final = logging.getLogger("spot_work")

ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TICK_SECONDS: Final = 1.0
_SETTLED_SECONDS: Final = (60.0, 120.0)
"""A state that lasts shorter is not written: the request ends within any grace period, and each write is an
update that all of the cluster's controllers see. Drawn from these bounds for each change, so that thousands
of workers do not write in the same second after an outage of their broker."""
_RETRY_SECONDS: Final = (30.0, 60.0)
_TIMEOUT_SECONDS: Final = 10.0


class PodApi:
    """Sets annotations of one pod with its own account.

    Args:
        name: the pod.
        server: the API's host and port.
        account: directory with ``token``, ``ca.crt`` and ``namespace``; the token is read at each call,
            because the kubelet renews it.
    """

    def __init__(self, name: str, server: tuple[str, int], account: Path = ACCOUNT) -> None:
        self._name = name
        self._server = server
        self._account = account

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation. Raises ``OSError`` if that fails."""
        namespace = (self._account / "namespace").read_text("utf-8").strip()
        token = (self._account / "token").read_text("utf-8").strip()
        tls = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        # Python 3.13 and later reject authorities without a key identifier, which clusters may have.
        tls.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        connection = http.client.HTTPSConnection(*self._server, context=tls, timeout=_TIMEOUT_SECONDS)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        body = json.dumps({"metadata": {"annotations": {key: value}}})
        try:
            connection.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{self._name}", body, headers)
            response = connection.getresponse()
            text = response.read(300).decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ConnectionError(repr(error)) from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise ConnectionError(f"{response.status} {text}")


class DeletionCost:
    """Keeps the cost of the pod's deletion at 1 while a request is in work, and else at 0.

    Args:
        annotate: sets an annotation of the pod; may raise ``OSError``.
        clock: returns seconds that never go back.
        draw: returns a number between two bounds.
    """

    def __init__(
        self,
        annotate: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = RANDOM.uniform,
    ) -> None:
        self._annotate = annotate
        self._clock = clock
        self._draw = draw
        self._is_working = self._written = False
        self._write_at = 0.0
        self._has_failed = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return that of the pod in ``SPOT_WORK_POD``; None outside a cluster."""
        name, host = environment.get("SPOT_WORK_POD"), environment.get("KUBERNETES_SERVICE_HOST")
        if not name or not host:
            return None
        server = host, int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
        return cls(PodApi(name, server).annotate)

    def set_working(self, is_working: bool) -> None:
        """Report whether the worker has a request."""
        if is_working != self._is_working:
            self._write_at = self._clock() + self._draw(*_SETTLED_SECONDS)
            self._is_working = is_working

    def step(self) -> None:
        """Write the cost if it has changed for long enough; a failure is logged once and tried again."""
        is_working = self._is_working
        if is_working == self._written or self._clock() < self._write_at:
            return
        try:
            self._annotate(ANNOTATION, "1" if is_working else "0")
        except OSError as error:
            self._write_at = self._clock() + self._draw(*_RETRY_SECONDS)
            if not self._has_failed:
                log.warning("cost of the pod's deletion not set: %s", error)
            self._has_failed = True
        else:
            self._written, self._has_failed = is_working, False

    def start(self) -> threading.Event:
        """Step each second in a thread, until the returned event is set."""
        stopped = threading.Event()

        def run() -> None:
            while not stopped.wait(_TICK_SECONDS):
                self.step()

        threads.start("spot-work-pod", run, lambda _: None)  # then the cost stays
        return stopped

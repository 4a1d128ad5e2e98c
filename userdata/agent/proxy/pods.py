"""The pods that are a service's workers, from the API of their cluster.

A pod that ends is not listed from its deletion on, which is before its ``preStop`` hook: no new request meets
a worker that has got SIGTERM. Its requests in flight run on.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from contracts.agent.config import HttpPods
from userdata.agent.aws.clients import aws_errors
from userdata.agent.machine.errors import AgentError
from userdata.agent.proxy.discovery import HttpHost

DISCOVER_SECONDS: Final = 1.0
"""From one answer of the API to the next question."""
WATCH_SECONDS: Final = 4
"""Time that the API waits for a change. All of these are far below the time from the deletion of a pod to its
SIGTERM (``infra.kubernetes.http_workers``)."""
_NAME_LABEL: Final = "app.kubernetes.io/name"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
TIMEOUT_SECONDS: Final = 3.0
SPARE_SECONDS: Final = 1.0
"""Time beyond `WATCH_SECONDS` after which a connection counts as lost."""
_QUIET_SECONDS: Final = 0.1
"""Changes come together in a roll-out: an answer is complete once nothing has come for so long."""
_MAX_ERROR_BYTES: Final = 200
_TOKEN_SECONDS: Final = 600.0
"""Time for which a token is used, of the 15 minutes that it is valid: EKS asks STS about each new one."""
_TOKEN_PREFIX: Final = "k8s-aws-v1."  # noqa: S105
_URL_SECONDS: Final = 60
_CLUSTER_HEADER: Final = "x-k8s-aws-id"


class ClusterApiError(AgentError):
    """The API does not answer, refuses the request, or answers something else."""


class _GoneError(ClusterApiError):
    """The API no longer has the changes since the last ones."""


class PodDiscovery:
    """Follows the pods of a service; ``token`` returns a bearer token.

    The first call lists them. Later ones wait for changes since, `WATCH_SECONDS` at most, so that the API
    sends each change once. Source: Kubernetes, "API Concepts", "Efficient detection of changes".
    """

    def __init__(
        self,
        pods: HttpPods,
        service: str,
        token: Callable[[], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = urlsplit(pods.endpoint)
        self._new_token = token
        self._token = ""
        self._token_until = 0.0
        self._monotonic = monotonic
        self._selector = {"labelSelector": f"{_NAME_LABEL}={service}"}
        self._path = f"/api/v1/namespaces/{pods.namespace}/pods"
        self._version = ""
        self._hosts: dict[str, HttpHost | None] = {}
        authority = base64.b64decode(pods.authority).decode("ascii")
        self._context = ssl.create_default_context(cadata=authority)
        # Certificates of clusters lack an extension that Python asks for since 3.13 (kubernetes-client/python
        # 2394); chain and name are still verified.
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def __call__(self) -> tuple[HttpHost, ...]:
        """Return the pods that run or start and are not being deleted.

        Raises:
            ClusterApiError: they are unknown now.
            AwsError: there are no credentials for a token.
        """
        try:
            self._update()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterApiError(f"pods: {self._address.hostname}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._version = ""
            raise ClusterApiError(f"pods: malformed answer: {error!r}") from None
        return tuple(host for host in self._hosts.values() if host is not None)

    def _update(self) -> None:
        if self._version:
            with suppress(_GoneError):
                self._follow()
        if not self._version:
            self._list()

    def _list(self) -> None:
        """Read all pods."""
        with self._request(TIMEOUT_SECONDS) as (_, response):
            pods = json.loads(response.read())
        self._hosts = {item["metadata"]["name"]: _host(item) for item in pods["items"]}
        self._version = pods["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        """Wait for changes and take them."""
        watch = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        watch["timeoutSeconds"] = str(WATCH_SECONDS)
        with self._request(WATCH_SECONDS + SPARE_SECONDS, watch) as (connection, response):
            line = response.readline()
            while line:
                event = json.loads(line)
                self._take(event["type"], event["object"])
                if event["type"] != "BOOKMARK" and connection.sock is not None:
                    connection.sock.settimeout(_QUIET_SECONDS)
                line = _line(response)

    def _take(self, kind: str, pod: Mapping[str, Any]) -> None:
        if kind == "ERROR":
            self._version = ""
            raise _error(pod["code"], pod.get("message", ""))
        metadata = pod["metadata"]
        if kind == "DELETED":
            self._hosts.pop(metadata["name"], None)
        elif kind != "BOOKMARK":
            self._hosts[metadata["name"]] = _host(pod)
        self._version = metadata["resourceVersion"]

    @contextmanager
    def _request(
        self, timeout: float, query: Mapping[str, str] | None = None
    ) -> Iterator[tuple[http.client.HTTPSConnection, http.client.HTTPResponse]]:
        """Yield the connection and the response of a request for the pods."""
        now = self._monotonic()
        if now >= self._token_until:
            self._token, self._token_until = self._new_token(), now + _TOKEN_SECONDS
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        connection = http.client.HTTPSConnection(
            self._address.hostname or "",
            self._address.port or 443,
            timeout=TIMEOUT_SECONDS,
            context=self._context,
        )
        with closing(connection):
            connection.connect()
            connection.sock.settimeout(timeout)
            connection.request(
                "GET", f"{self._path}?{urlencode({**self._selector, **(query or {})})}", headers=headers
            )
            response = connection.getresponse()
            if response.status != http.client.OK:
                # Whatever it is: by a list and a new token if these are why.
                self._version, self._token_until = "", 0.0
                text = response.read(_MAX_ERROR_BYTES).decode("utf-8", "replace")
                raise _error(response.status, text)
            yield connection, response


def _error(status: int, text: str) -> ClusterApiError:
    kind = _GoneError if status == http.client.GONE else ClusterApiError
    return kind(f"pods: status {status}: {text}")


def _line(response: http.client.HTTPResponse) -> bytes:
    """Return the next line of a watch; empty at its end, and after a silence."""
    try:
        return response.readline()
    except TimeoutError:
        return b""


def _host(pod: Mapping[str, Any]) -> HttpHost | None:
    metadata, status = pod["metadata"], pod.get("status", {})
    address = status.get("podIP")
    if not address or metadata.get("deletionTimestamp") or status.get("phase") in _ENDED:
        return None
    created = datetime.fromisoformat(metadata["creationTimestamp"])
    return HttpHost(metadata["name"], address, created.timestamp())


def token(sts: Any, cluster: str) -> str:
    """Return a token of the client's identity for a cluster, valid for 15 minutes; nothing is called.

    It is a signed URL of STS's ``GetCallerIdentity``, which EKS calls. Source: AWS CLI,
    ``awscli/customizations/eks/get_token.py``; aws-iam-authenticator, ``pkg/token``.
    """

    def add_cluster(request: Any, **_: Any) -> None:
        # Signed once by each call: a second header of the same name would be another signature.
        del request.headers[_CLUSTER_HEADER]
        request.headers[_CLUSTER_HEADER] = cluster

    sts.meta.events.register(
        "before-sign.sts.GetCallerIdentity", add_cluster, unique_id="gpu-spot-cluster-token"
    )
    with aws_errors(f"token of cluster {cluster}"):
        url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=_URL_SECONDS, HttpMethod="GET")
    return _TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")

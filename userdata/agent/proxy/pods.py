"""The pods that are a service's workers, from the API of their cluster.

A pod that ends is not listed from its deletion on, which is before its ``preStop`` hook: no new request meets
a worker that has got SIGTERM. Its requests in flight run on.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from contracts.agent.config import HttpPods
from userdata.agent.aws.clients import aws_errors
from userdata.agent.machine.errors import AgentError
from userdata.agent.proxy.discovery import HttpHost

DISCOVER_SECONDS: Final = 2.0
"""Interval of lists. Pods end no sooner than several of them after their deletion
(``infra.kubernetes.services``)."""
_NAME_LABEL: Final = "app.kubernetes.io/name"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
TIMEOUT_SECONDS: Final = 3.0
_TOKEN_PREFIX: Final = "k8s-aws-v1."  # noqa: S105
_URL_SECONDS: Final = 60
_CLUSTER_HEADER: Final = "x-k8s-aws-id"


class ClusterApiError(AgentError):
    """The API does not answer, refuses the request, or answers something else."""


class PodDiscovery:
    """Lists the pods of a service; ``token`` returns a bearer token."""

    def __init__(self, pods: HttpPods, service: str, token: Callable[[], str]) -> None:
        self._address = urlsplit(pods.endpoint)
        self._token = token
        selector = urlencode({"labelSelector": f"{_NAME_LABEL}={service}"})
        self._path = f"/api/v1/namespaces/{pods.namespace}/pods?{selector}"
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
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        connection = http.client.HTTPSConnection(
            self._address.hostname or "",
            self._address.port or 443,
            timeout=TIMEOUT_SECONDS,
            context=self._context,
        )
        try:
            with closing(connection):
                connection.request("GET", self._path, headers=headers)
                response = connection.getresponse()
                body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterApiError(f"pods: {self._address.hostname}: {error}") from None
        if response.status != http.client.OK:
            raise ClusterApiError(f"pods: status {response.status}: {body[:200].decode('utf-8', 'replace')}")
        try:
            return tuple(host for item in json.loads(body)["items"] if (host := _host(item)) is not None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClusterApiError(f"pods: malformed list: {error!r}") from None


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

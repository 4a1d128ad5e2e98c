"""A client of a Kubernetes API server: a kubeconfig, the standard library, one connection for each thread."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import yaml

from infra.kubernetes.context import Manifest

MANAGER: Final = "pulumi-kubernetes"
"""The field manager of server-side apply."""
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/strategic-merge-patch+json"


class RefusedError(Exception):
    """The API server refused a request; ``code`` is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        with contextlib.suppress(ValueError):
            text = json.loads(text).get("message", text)
        super().__init__(f"{code}: {text}")
        self.code = code


class ClusterApi:
    """The API of the current context of a kubeconfig; ``agent`` is the user agent, which the audit log has.

    Raises:
        ValueError: the kubeconfig has no certificate authority, or credentials of an unknown kind.
    """

    def __init__(self, kubeconfig: Path, agent: str = "gpu-spot-test") -> None:
        self._agent = agent
        self.folder = kubeconfig.parent
        """Where the kubeconfig is."""
        config = yaml.safe_load(kubeconfig.read_text("utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        self._server = urlsplit(cluster["server"])
        authority = _data(cluster, "certificate-authority", kubeconfig)
        if authority is None:
            raise ValueError(f"{kubeconfig}: the cluster has no certificate-authority; add one")
        self._tls = ssl.create_default_context(cadata=authority)
        # Python 3.13 and later reject what the API server makes for itself: it names no authority's key.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._token = _token(user)
        if (certificate := _data(user, "client-certificate", kubeconfig)) is not None:
            key = _data(user, "client-key", kubeconfig)
            with tempfile.NamedTemporaryFile("w") as pair:
                pair.write(f"{certificate}\n{key}")
                pair.flush()
                self._tls.load_cert_chain(pair.name)
        elif not self._token:
            raise ValueError(
                f"{kubeconfig}: the user must have a token, exec or client-certificate, not {', '.join(user)}"
            )
        self._local = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> Any:
        """Return the response's JSON, or its text. Raises ``RefusedError`` for a status of 400 or above."""
        if query:
            path = f"{path}?{urlencode(query)}"
        data = body if body is None or isinstance(body, bytes) else _encode(body)
        headers = {**self._headers(), "Content-Type": kind}
        status, text = self._exchange(method, self._server.path.rstrip("/") + path, data, headers)
        if status >= http.client.BAD_REQUEST:
            raise RefusedError(status, text)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        return {**headers, "Authorization": f"Bearer {self._token}"} if self._token else headers

    def watch(self, path: str, **query: str) -> Iterator[Manifest]:
        """Yield the events of a watch until the server ends it. Raises ``OSError`` if the connection ends."""
        connection = http.client.HTTPSConnection(*self.address, context=self._tls)
        self._connections.append(connection)
        path = f"{self._server.path.rstrip('/')}{path}?{urlencode({**query, 'watch': 'true'})}"
        connection.request("GET", path, headers=self._headers())
        for line in connection.getresponse():
            yield json.loads(line)

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str]:
        """Send a request, once more on a connection that the server had closed."""
        for is_last in (False, True):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection(*self.address, context=self._tls, timeout=30)
                self._local.connection = connection
                self._connections.append(connection)
            try:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                return response.status, response.read().decode()
            except (http.client.HTTPException, OSError):
                connection.close()
                self._local.connection = None
                if is_last:
                    raise
        raise AssertionError("unreachable")

    @property
    def address(self) -> tuple[str, int]:
        return self._server.hostname or "", self._server.port or 443

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def get(self, path: str, **query: str) -> Any:
        return self.request("GET", path, **query)

    def items(self, path: str, **query: str) -> list[Manifest]:
        items: list[Manifest] = self.get(path, **query)["items"]
        return items

    def post(self, path: str, body: Any) -> Any:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Any, **query: str) -> Any:
        return self.request("PATCH", path, body, _MERGE, **query)

    def delete(self, path: str, body: Any = None) -> Any:
        return self.request("DELETE", path, body)

    def apply(self, manifest: Manifest, **query: str) -> Manifest:
        """Apply on the server's side, validated strictly, as Pulumi's provider does."""
        fields = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        path = self.path(manifest)
        body = _encode(manifest)
        applied: Manifest = self.request("PATCH", path, body, _APPLY, **fields, **query)
        return applied

    def path(self, manifest: Manifest) -> str:
        """Return an object's path. Raises ``RefusedError`` 404 for a kind that is not served."""
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._paths:
            resources = self.get(root)["resources"]
            served = {item["kind"]: item for item in resources if "/" not in item["name"]}
            if kind not in served:
                raise RefusedError(404, f"{version} {kind} is not served")
            self._paths[version, kind] = served[kind]["name"], served[kind]["namespaced"]
        plural, is_namespaced = self._paths[version, kind]
        inside = f"/namespaces/{metadata['namespace']}" if is_namespaced else ""
        return f"{root}{inside}/{plural}/{quote(metadata['name'])}"


def _encode(body: Any) -> bytes:
    """Return JSON without escapes of surrogates, which the server's YAML parser rejects."""
    return json.dumps(body, ensure_ascii=False).encode()


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _data(section: dict[str, Any], key: str, kubeconfig: Path) -> str | None:
    """Return a PEM text that a section has in it, or in a file."""
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"]).decode()
    return (kubeconfig.parent / section[key]).read_text("utf-8") if key in section else None


def _token(user: dict[str, Any]) -> str:
    if "exec" in user:
        call = user["exec"]
        command = [call["command"], *call.get("args", ())]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return str(json.loads(said.stdout)["status"].get("token", ""))
    return str(user.get("token", ""))

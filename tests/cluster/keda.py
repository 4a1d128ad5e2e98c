"""KEDA itself beside a local control plane: its operator, its adapter, and a CloudWatch that a test plays."""

from __future__ import annotations

import contextlib
import io
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import botocore.session
from botocore.parsers import RpcV2CBORParser
from botocore.serialize import RpcV2CBORSerializer

from infra.components.cluster.charts import KEDA_NAMESPACE
from infra.kubernetes.context import Manifest
from tests.cluster.client import ClusterApi
from tests.cluster.controllers import await_answer, built, define, loopback_service
from tests.cluster.local import Components, free_ports

_GROUP: Final = "external.metrics.k8s.io"
OUTAGES: Final = ("an error", "no data", "throttled", "a malformed answer", "a late answer")
_THROTTLED: Final = b"\xa1\x66__type\x73ThrottlingException"
"""A map of one text to another in CBOR (RFC 8949)."""


class PlayedCloudWatch:
    """``GetMetricData`` over HTTP: each metric's value by its namespace, name and dimensions."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, frozenset[tuple[str, str]]], float] = {}
        self._outage: str | None = None
        self._is_over = threading.Event()
        self.reads = 0
        shape = (
            botocore.session.get_session().get_service_model("cloudwatch").operation_model("GetMetricData")
        )
        self._output = shape.output_shape
        self._parser = RpcV2CBORParser()
        self._serializer = RpcV2CBORSerializer()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.reads += 1
                status, answer = outer.answer(self.path, body)
                self.send_response(status)
                self.send_header("Smithy-Protocol", "rpc-v2-cbor")
                self.send_header("Content-Type", "application/cbor")
                self.send_header("Content-Length", str(len(answer)))
                with contextlib.suppress(OSError):  # the caller has given up
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def outage(self, way: str) -> Iterator[None]:
        """Answer no request with a value, in one of the ways ``OUTAGES``."""
        self._outage = way
        self._is_over.clear()
        try:
            yield
        finally:
            self._outage = None
            self._is_over.set()

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        match self._outage:
            case "an error":
                return 500, b""
            case "throttled":
                return 400, _THROTTLED
            case "a malformed answer":
                return 200, b"<html>"
            case "a late answer":
                self._is_over.wait()
        assert path.endswith("/operation/GetMetricData"), path
        request: dict[str, Any] = self._parser.parse_data_item(io.BufferedReader(io.BytesIO(body)))  # type: ignore[arg-type]
        results = []
        for query in request["MetricDataQueries"]:
            metric = query["MetricStat"]["Metric"]
            dimensions = frozenset((item["Name"], item["Value"]) for item in metric["Dimensions"])
            value = self.values.get((metric["Namespace"], metric["MetricName"], dimensions))
            values = [] if value is None or self._outage else [value]
            times = [time.time()] * len(values)
            results.append(
                {"Id": query["Id"], "StatusCode": "Complete", "Values": values, "Timestamps": times}
            )
        encoded = bytearray()
        self._serializer._serialize_data_item(encoded, {"MetricDataResults": results}, self._output)
        return 200, bytes(encoded)

    def close(self) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def keda(api: ClusterApi) -> Iterator[PlayedCloudWatch]:
    """Run KEDA's operator and adapter; yield the CloudWatch that they read."""
    folder, work = built("keda"), api.folder / "keda"
    work.mkdir()
    define(api, folder)
    metrics, health, grpc, adapter, adapter_metrics = free_ports(5)
    _register(api, adapter)
    _certificate(work)
    cloudwatch, components = PlayedCloudWatch(), Components(work)
    kubeconfig = str(api.folder / "kubeconfig")
    variables = {
        **{"KUBECONFIG": kubeconfig, "WATCH_NAMESPACE": "", "POD_NAMESPACE": KEDA_NAMESPACE},
        **{"KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA_NAMESPACE, "AWS_ENDPOINT_URL": cloudwatch.address},
        **{"AWS_ACCESS_KEY_ID": "played", "AWS_SECRET_ACCESS_KEY": "played", "AWS_REGION": "us-west-2"},
    }
    components.start(
        "operator",
        [
            *(folder / "operator", f"--cert-dir={work}", "--enable-webhook-patching=false"),
            *(f"--metrics-bind-address=127.0.0.1:{metrics}", "--enable-apiservice-patching=false"),
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-service-bind-address=127.0.0.1:{grpc}",
        ],
        variables,
    )
    components.start(
        "adapter",
        [
            *(folder / "adapter", f"--cert-dir={work}", f"--secure-port={adapter}"),
            *("--bind-address=127.0.0.1", f"--port={adapter_metrics}"),
            *(f"--tls-cert-file={work / 'tls.crt'}", f"--tls-private-key-file={work / 'tls.key'}"),
            *(f"--{name}-kubeconfig={kubeconfig}" for name in ("lister", "authentication", "authorization")),
            *("--authentication-skip-lookup", "--authorization-always-allow-paths=/apis/*"),
            f"--metrics-service-address=127.0.0.1:{grpc}",
        ],
        variables,
    )
    try:
        await_answer(lambda: api.get(f"/apis/{_GROUP}/v1beta1"), components)
        yield cloudwatch
        components.check()
    finally:
        components.stop()
        cloudwatch.close()


def _register(api: ClusterApi, port: int) -> None:
    """Register the API of external metrics, which the autoscaler reads, at a port."""
    service = {**loopback_service(api, KEDA_NAMESPACE, "keda-metrics-apiserver"), "port": port}
    served = {"group": _GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    registration: Manifest = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    spec = {**served, "service": service, "insecureSkipTLSVerify": True}
    api.apply({**registration, "metadata": {"name": f"v1beta1.{_GROUP}"}, "spec": spec})
    # This API server forwards requests without a client certificate.
    rbac, named = "rbac.authorization.k8s.io", {"metadata": {"name": "anybody-reads-external-metrics"}}
    rules = [{"apiGroups": [_GROUP], "resources": ["*"], "verbs": ["get", "list"]}]
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", **named, "rules": rules})
    role = {"apiGroup": rbac, "kind": "ClusterRole", **named["metadata"]}
    anybody = {"apiGroup": rbac, "kind": "User", "name": "system:anonymous"}
    binding: Manifest = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "roleRef": role}
    api.apply({**binding, **named, "subjects": [anybody]})


def _certificate(folder: Path) -> None:
    """Make the certificate with which the operator and the adapter know each other."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", "tls.key", "-out", "tls.crt", "-days", "2", "-subj", "/CN=keda"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())

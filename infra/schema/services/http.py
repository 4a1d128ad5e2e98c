"""Settings of ``services[].http``: an address at which callers reach a service's workers."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent.config import HttpWorkers
from contracts.limits import MAX_PROXY_SERVERS
from infra.catalogue import cpu_types
from infra.catalogue.accelerators import Architecture
from infra.schema.base import CpuType, Model, check_region, each_once, is_private
from infra.schema.network import SubnetId

MAX_WORKERS: Final = 1000
MAX_SLOTS: Final = 128
"""Bounds of the same fields of `HttpProxy`."""

HttpSource: TypeAlias = Annotated[
    str, Field(pattern=r"^(sg-[0-9a-f]{8,17}|[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2})$")
]
"""A security group or CIDR block that may connect to the load balancer."""

CertificateArn: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]{36}$")
]
DomainName: TypeAlias = Annotated[
    str, Field(pattern=r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$", max_length=253)
]
HostedZoneId: TypeAlias = Annotated[str, Field(pattern=r"^Z[A-Z0-9]{1,31}$")]


class Proxies(Model):
    """The instances with HAProxy between load balancer and workers: On-Demand, spread over the zones."""

    instance_type: CpuType = "c7g.large"
    """Instance type without accelerators."""
    count: Annotated[int, Field(ge=2, le=20)] = 2
    """Number of proxies. Each has its share of `concurrency`."""
    drain_seconds: Annotated[int, Field(ge=0, le=3000)] = 300
    """Seconds that requests at a proxy have to end before it is replaced. As long as the longest stream."""

    @property
    def architecture(self) -> Architecture:
        """CPU architecture of the instances."""
        return cpu_types.architecture(self.instance_type)


class Http(Model):
    """An address for the workers, which are HTTP servers: a load balancer and proxies before them.

    A worker listens on the port in ``GPU_SPOT_PORT``: ``port`` and its slot on the instance.
    """

    port: limits.WorkerPort
    """Port of an instance's first worker; the others have the next ones."""
    readiness: limits.HttpPath = "/health"
    """Path that a worker answers with a status of 2xx within 5 seconds once it is ready. Not asked with
    ``grpc``: ready is then a worker whose port is open."""
    protocol: Literal["http", "grpc"] = "http"
    """``grpc`` needs a certificate: load balancers accept gRPC over TLS only."""
    allowed_sources: Annotated[tuple[HttpSource, ...], Field(max_length=20)] = ()
    """Security groups and CIDR blocks that may call the address, in addition to the stack's workers: private
    networks, with ``public`` any."""
    public: bool = False
    """Whether the address is on the internet. Needs a certificate, and the service's name in the policy
    pack's ``publicServices``."""
    certificate_arn: CertificateArn | None = None
    """ARN of a certificate in AWS Certificate Manager. Default: HTTP on port 80 without TLS."""
    domain: DomainName | None = None
    """Domain name of the address, which the certificate must have. Default: the load balancer's own name."""
    hosted_zone_id: HostedZoneId | None = None
    """Route 53 hosted zone in which the stack declares ``domain``. Default: it is declared elsewhere."""
    subnets: Annotated[tuple[SubnetId, ...], Field(max_length=6)] = ()
    """Subnets of the load balancer in an existing VPC, one for each of two zones or more; public ones with
    ``public``. Default: ``network.subnets``."""
    concurrency: limits.HttpConcurrency = 16
    """Requests that a worker serves at once. More wait at the proxies, each of which has its share, rounded
    up: with 2 proxies and 1, a worker may get 2."""
    idle_timeout: Annotated[int, Field(ge=1, le=1995)] = 60
    """Seconds without a byte after which a request counts as lost, and that a request waits for a worker at
    most."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Times that a request is sent to another worker, if its worker is lost before a byte of the answer and
    a repetition does no harm."""
    retry_paths: Annotated[tuple[limits.HttpPath, ...], Field(max_length=50)] = ()
    """Prefixes of paths whose requests may be repeated, whatever their method, if they have at most 60 KB.
    Not of calls whose caller streams. Default: requests with a safe method or an ``Idempotency-Key``."""
    proxies: Proxies = Field(default_factory=Proxies)
    """The proxies."""
    access_log_days: Annotated[int, Field(ge=0, le=3650)] = 30
    """Days that access logs are retained, in a bucket that is deleted with the load balancer. 0: no access
    logs."""

    @property
    def listener_port(self) -> int:
        """Port of the address."""
        return 80 if self.certificate_arn is None else 443

    @property
    def idle_timeout_of_load_balancer(self) -> int:
        """Idle timeout of the load balancer, 1 to 4000 s: longer than a wait and a silence at the proxies.

        Otherwise the caller gets its 504 in place of a repetition. Source of the bounds: Elastic Load
        Balancing API reference, ``LoadBalancerAttribute``, ``idle_timeout.timeout_seconds``.
        """
        return 2 * self.idle_timeout + 10

    @property
    def workers(self) -> HttpWorkers:
        """The workers in the format of the node agent."""
        return HttpWorkers(self.port, self.readiness, is_grpc=self.protocol == "grpc")

    @property
    def source_security_groups(self) -> tuple[str, ...]:
        """Security groups of ``allowedSources``."""
        return tuple(source for source in self.allowed_sources if source.startswith("sg-"))

    @field_validator("public")
    @classmethod
    def _valid_sources(cls, public: bool, info: ValidationInfo) -> bool:
        sources = info.data.get("allowed_sources", ())
        if public and not sources and "allowed_sources" in info.data:
            raise ValueError("needs allowedSources; list the networks of the callers")
        for source in sources:
            check_source(source, public=public)
        return public

    _each_once = field_validator("allowed_sources", "retry_paths", "subnets")(each_once)

    @field_validator("certificate_arn")
    @classmethod
    def _encrypted(cls, arn: str | None, info: ValidationInfo) -> str | None:
        if arn is None and info.data.get("public"):
            raise ValueError("is required with public; set the ARN of a certificate")
        if arn is None and info.data.get("protocol") == "grpc":
            raise ValueError("is required with protocol 'grpc'; set the ARN of a certificate")
        return check_region(arn, info)

    @field_validator("domain", "hosted_zone_id")
    @classmethod
    def _complete(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Refuse a domain without a certificate, and a hosted zone without a domain."""
        field, key = ("certificate_arn", "certificateArn") if info.field_name == "domain" else ("domain",) * 2
        if value is not None and info.data.get(field, "") is None:
            raise ValueError(f"is {value!r}, which needs {key}; set {key}, or remove this key")
        return value


def check_workers(http: Http, workers: int, slots: int, instances: int) -> None:
    """Raise ``ValueError`` for more workers than proxies support, or for ports that are not free.

    Args:
        http: the address.
        workers: maximum number of workers of the service.
        slots: maximum number of workers of one instance; proxies have room for as many on each.
        instances: maximum number of instances.
    """
    if workers > MAX_WORKERS:
        raise ValueError(f"http works with at most {MAX_WORKERS} workers (capacity.max), not {workers}")
    if slots > MAX_SLOTS:
        raise ValueError(f"http works with at most {MAX_SLOTS} workers on an instance, not {slots}")
    if instances > (rows := MAX_PROXY_SERVERS // slots):
        raise ValueError(
            f"http works with at most {rows} instances if one may have {slots} workers, not {instances}; "
            "use types with the same number of GPUs, or lower capacity.max"
        )
    last, check_port = http.port + slots - 1, http.workers.check_port
    if http.port <= check_port <= last:
        raise ValueError(
            f"http.port {http.port} and the next ports, up to {last}, include {check_port}, the "
            "node agent's; choose another port"
        )


def check_source(source: str, *, public: bool) -> None:
    """Raise ``ValueError`` for what is not a network, or a public one for an address that is not public."""
    if source.startswith("sg-"):
        return
    try:
        network = ipaddress.IPv4Network(source)
    except ValueError as error:
        raise ValueError(
            f"allowedSources has {source!r}, which is not a network ({error}); write one such as 10.30.0.0/16"
        ) from None
    if not public and not is_private(network):
        raise ValueError(f"must be true to admit {source} (allowedSources), which is not a private network")

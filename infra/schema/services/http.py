"""Settings of ``services[].http``: an address at which callers reach a service's workers."""

from __future__ import annotations

from contracts import limits
from contracts.agent.config import HttpWorkers
from infra.schema.base import Model


class Http(Model):
    """An address for the workers, which are HTTP servers: a load balancer and proxies before them."""

    port: limits.WorkerPort
    """Port of an instance's first worker; the others have the next ones."""
    readiness: limits.HttpPath = "/health"
    """Path that a worker answers with a status of 2xx once it is ready."""
    concurrency: limits.HttpConcurrency = 16
    """Requests that a worker serves at once. More wait at the proxies."""

    @property
    def workers(self) -> HttpWorkers:
        """The workers in the format of the node agent."""
        return HttpWorkers(self.port, self.readiness)

"""Settings of a stack: frozen models that reject unknown keys and values out of range."""

from __future__ import annotations

from infra.schema.capacity import Capacity
from infra.schema.cluster.kubernetes import Kubernetes
from infra.schema.jobs.builder import Builder
from infra.schema.jobs.training import Training
from infra.schema.network import Network
from infra.schema.operations import Bucket, Deploys, Identity, Monitoring, Previews, Repository, Storage
from infra.schema.services.on_premises import ListedHost, OnPremises
from infra.schema.services.request_log import RequestLog
from infra.schema.services.scaling import Scaling
from infra.schema.services.service import Service
from infra.schema.settings import Settings
from infra.schema.shared_host import SharedHost
from infra.schema.tensorboard import TensorBoard
from infra.schema.work import Dataset, Work

__all__ = (
    "Bucket",
    "Builder",
    "Capacity",
    "Dataset",
    "Deploys",
    "Identity",
    "Kubernetes",
    "ListedHost",
    "Monitoring",
    "Network",
    "OnPremises",
    "Previews",
    "Repository",
    "RequestLog",
    "Scaling",
    "Service",
    "Settings",
    "SharedHost",
    "Storage",
    "TensorBoard",
    "Training",
    "Work",
)

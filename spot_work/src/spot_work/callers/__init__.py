"""Other forms of the client: `AsyncClient` for asyncio, `Tasks` for functions with a decorator."""

from spot_work.callers.asynchronous import AsyncClient
from spot_work.callers.tasks import Tasks, WorkerTask

__all__ = ["AsyncClient", "Tasks", "WorkerTask"]

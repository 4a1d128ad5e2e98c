"""Bring to S3 what a job leaves in its artifacts' folder: what changed, at each checkpoint and at the end.

We read as root what the job's user wrote. So no link is followed, of files or folders: what goes out is what
truly lies in that folder. What has gone is remembered beside the folder, where the job cannot write and the
data volume takes it along; so the role needs neither to read nor to list what is in the bucket.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from userdata.agent.aws.clients import error_code
from userdata.agent.machine import files, log
from userdata.agent.machine.clock import Clock

_AT_ONCE: Final = 8
"""Files that are under way together; large ones go in parts, in parallel."""
_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 5.0
_LOOK_EVERY: Final = 0.5
_LAST_GRACE: Final = 10.0

Fingerprint = list[int]
"""Size, time of the last change (nanoseconds; a program cannot set it) and inode of a file."""


class Artifacts:
    """Uploads a folder again and again, in a thread of its own.

    Args:
        uploader: s3transfer's manager, made when there is something to upload.
        folder: what the job's command knows as ``GPU_SPOT_ARTIFACTS``.
        target: ``s3://bucket/folder/``.
        record: where what has gone is remembered.
    """

    def __init__(
        self, uploader: Callable[[], Any], folder: Path, target: str, record: Path, clock: Clock
    ) -> None:
        self._uploader = uploader
        self._folder = folder
        self._target = target
        self._bucket, _, self._prefix = target.removeprefix("s3://").partition("/")
        self._record = record
        self._clock = clock
        self._newest = 0.0
        self._round: threading.Thread | None = None
        self._over = threading.Event()
        self._problem = ""

    def offer(self, checkpoint: float) -> None:
        """Begin to upload what changed if there is a newer checkpoint than at the last offer."""
        if checkpoint > self._newest and not self._is_busy():
            self._newest = checkpoint
            self._begin()

    def deliver(self, until: Callable[[], float], look_after: Callable[[], None]) -> str:
        """Upload all that changed; try again what does not arrive, a few times, ``until`` a time at most.

        Args:
            until: tells when to give up, on the monotonic clock; it may come to be sooner.
            look_after: called while it waits; what it raises ends the delivery.

        Returns:
            Nothing when all is there; else what is not, and why.
        """
        try:
            self._wait(until, look_after)  # for what began while the job still wrote
            pause = _FIRST_PAUSE
            for attempt in range(_ATTEMPTS):
                if attempt:
                    log.warning("artifacts are not all there", problem=self._problem, again_in=pause)
                    end = min(self._clock.monotonic() + pause, until())
                    while self._clock.monotonic() < end:
                        look_after()
                        self._clock.sleep(_LOOK_EVERY)
                    pause *= 2
                if self._clock.monotonic() >= until():
                    return self._told(self._problem or "no time")
                self._begin()
                self._wait(until, look_after)
                if not self._problem:
                    return ""
        finally:
            self._over.set()
        return self._told(self._problem)

    def _told(self, problem: str) -> str:
        reason = f"artifacts are not all in {self._target}: {problem}"
        log.error("artifacts not delivered", reason=reason)
        return reason

    def _is_busy(self) -> bool:
        return self._round is not None and self._round.is_alive()

    def _begin(self) -> None:
        self._over.clear()
        self._round = threading.Thread(target=self._upload_all, name="artifacts", daemon=True)
        self._round.start()

    def _wait(self, until: Callable[[], float], look_after: Callable[[], None]) -> None:
        while self._is_busy():
            look_after()
            if self._clock.monotonic() >= until():
                self._over.set()
                assert self._round is not None
                self._round.join(_LAST_GRACE)
                return
            self._clock.sleep(_LOOK_EVERY)

    def _upload_all(self) -> None:
        """One round; `_problem` says afterwards what did not arrive."""
        self._problem = "not begun"
        try:
            count = self._round_of(gone := self._gone())
            if count:
                files.write_json(self._record, {"target": self._target, "files": gone})
                log.info("artifacts uploaded", files=count, target=self._target)
        except Exception as error:  # a thread has nobody else to tell
            self._problem = f"{type(error).__name__}: {error}"

    def _gone(self) -> dict[str, Fingerprint]:
        told = files.read_json(self._record) or {}
        return dict(told.get("files", {})) if told.get("target") == self._target else {}

    def _round_of(self, gone: dict[str, Fingerprint]) -> int:
        problems: list[str] = []
        under_way: deque[tuple[_Open, BinaryIO, Any]] = deque()
        count, uploader = 0, None

        def settle() -> int:
            file, copy, upload = under_way.popleft()
            with file, contextlib.closing(copy):
                problem = self._settle(file, upload)
            if problem:
                problems.append(f"{file.name}: {problem}")
            else:
                gone[file.name] = file.seen
            return not problem

        for file in self._changed(gone):
            uploader = uploader or self._uploader()
            copy = file.copy()
            under_way.append((file, copy, uploader.upload(copy, self._bucket, f"{self._prefix}{file.name}")))
            if len(under_way) >= _AT_ONCE:
                count += settle()
        while under_way:
            count += settle()
        if self._over.is_set():
            problems.append("no time")
        self._problem = problems[0] if problems else ""
        return count

    def _settle(self, file: _Open, upload: Any) -> str:
        """Wait for an upload; return nothing if it arrived as it was when it began, else why not."""
        while not upload.done():
            if self._over.wait(0.05):
                upload.cancel()
                break
        try:
            upload.result()
        except Exception as error:  # whatever a transfer says is the reason
            return f"{error_code(error) or type(error).__name__}: {error}"
        return "" if file.is_unchanged() else "changed while it was uploaded"

    def _changed(self, gone: dict[str, Fingerprint]) -> Iterator[_Open]:
        """Yield the files that are not there as they are here, open; names with a dot first are not ready."""
        for root, folders, names, place in os.fwalk(self._folder, follow_symlinks=False):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if self._over.is_set():
                    return
                if name.startswith("."):
                    continue
                path = str(Path(root, name).relative_to(self._folder))
                file = _opened(name, place, path)
                if file is None:
                    continue
                if gone.get(path) == file.seen:
                    file.close()
                elif not _is_key(f"{self._prefix}{path}"):
                    file.close()
                    log.warning("artifact left out", file=repr(path), reason="S3 takes 1,024 bytes of UTF-8")
                else:
                    yield file


class _Open:
    """A file that is open: what is read is what was looked at, whatever its name comes to mean."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self.name = name
        self.seen = self._fingerprint()

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy(self) -> BinaryIO:
        """Return it to read; s3transfer closes it when it has read it, and not when it never came to it."""
        return os.fdopen(os.dup(self._number), "rb")

    def is_unchanged(self) -> bool:
        return self._fingerprint() == self.seen

    def close(self) -> None:
        os.close(self._number)

    def _fingerprint(self) -> Fingerprint:
        found = os.fstat(self._number)
        return [found.st_size, found.st_ctime_ns, found.st_ino]


def _opened(name: str, place: int, path: str) -> _Open | None:
    """Open a regular file of the open folder ``place``; None for a link, a pipe and what is gone."""
    try:
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    return _Open(number, path)


def _is_key(key: str) -> bool:
    try:
        return len(key.encode()) <= 1024
    except UnicodeEncodeError:
        return False

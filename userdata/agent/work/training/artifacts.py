"""Uploads of a job's artifacts to S3: changed files, after each checkpoint and at the end.

The agent reads, as root, files that the job's user wrote, so it follows no link: only files that are really
in the directory are uploaded. The record of uploaded files is next to the directory, where the job cannot
write and which migrates with the data volume; so the role needs no permission to read or list the bucket.
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

_MAX_PARALLEL_UPLOADS: Final = 8
"""Files uploaded at a time; large files are uploaded in parts, in parallel."""
_MAX_ATTEMPTS: Final = 5
_MIN_RETRY_SECONDS: Final = 5.0
_POLL_INTERVAL_SECONDS: Final = 0.5
_CANCEL_GRACE_SECONDS: Final = 10.0

Fingerprint = list[int]
"""Size, ctime (nanoseconds; a program cannot set it) and inode of a file."""


class Artifacts:
    """Uploads a directory repeatedly, in a thread.

    Args:
        uploader: creates s3transfer's manager, when there is something to upload.
        directory: ``GPU_SPOT_ARTIFACTS`` of the job's command.
        target: ``s3://bucket/prefix/``.
        record: file that lists the uploaded files.
        clock: wall and monotonic time.
    """

    def __init__(
        self, uploader: Callable[[], Any], directory: Path, target: str, record: Path, clock: Clock
    ) -> None:
        self._uploader = uploader
        self._directory = directory
        self._target = target
        self._bucket, _, self._prefix = target.removeprefix("s3://").partition("/")
        self._record = record
        self._clock = clock
        self._last_checkpoint = 0
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        self._problem = ""

    def offer(self, checkpoint: int) -> None:
        """Start to upload changed files if ``checkpoint``, a count of new ones, is above the last call's."""
        if checkpoint > self._last_checkpoint and not self._is_busy():
            self._last_checkpoint = checkpoint
            self._start()

    def deliver(self, deadline: Callable[[], float], on_poll: Callable[[], None]) -> str:
        """Upload all changed files, with a few retries.

        Args:
            deadline: returns when to give up (monotonic seconds); it may move closer.
            on_poll: called while it waits; an exception ends the delivery.

        Returns:
            An empty string if everything is uploaded; else the reason why not.
        """
        try:
            self._wait(deadline, on_poll)  # for an upload that started while the job ran
            delay = _MIN_RETRY_SECONDS
            for attempt in range(_MAX_ATTEMPTS):
                if attempt:
                    log.warning("artifact upload failed; retrying", problem=self._problem, retry_in=delay)
                    end = min(self._clock.monotonic() + delay, deadline())
                    while self._clock.monotonic() < end:
                        on_poll()
                        self._clock.sleep(_POLL_INTERVAL_SECONDS)
                    delay *= 2
                if self._clock.monotonic() >= deadline():
                    return self._log_failure(self._problem or "no time")
                self._start()
                self._wait(deadline, on_poll)
                if not self._problem:
                    return ""
        finally:
            self._cancelled.set()
        return self._log_failure(self._problem)

    def _log_failure(self, problem: str) -> str:
        reason = f"artifacts not uploaded to {self._target}: {problem}"
        log.error("artifacts not uploaded", reason=reason)
        return reason

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        self._cancelled.clear()
        self._thread = threading.Thread(target=self._upload_all, name="artifacts", daemon=True)
        self._thread.start()

    def _wait(self, deadline: Callable[[], float], on_poll: Callable[[], None]) -> None:
        while self._is_busy():
            on_poll()
            if self._clock.monotonic() >= deadline():
                self._cancelled.set()
                assert self._thread is not None
                self._thread.join(_CANCEL_GRACE_SECONDS)
                return
            self._clock.sleep(_POLL_INTERVAL_SECONDS)

    def _upload_all(self) -> None:
        """Upload all changed files once; `_problem` is the first error, empty on success."""
        self._problem = "not started"
        try:
            count = self._upload_changed(uploaded := self._read_uploaded())
            if count:
                log.info("artifacts uploaded", files=count, target=self._target)
                try:
                    files.write_json(self._record, {"target": self._target, "files": uploaded})
                except OSError as error:  # the volume is full: the next upload repeats these
                    log.warning("artifacts not recorded", record=str(self._record), error=str(error))
        except Exception as error:  # reported by the thread that waits
            self._problem = f"{type(error).__name__}: {error}"

    def _read_uploaded(self) -> dict[str, Fingerprint]:
        record = files.read_json(self._record) or {}
        return dict(record.get("files", {})) if record.get("target") == self._target else {}

    def _upload_changed(self, uploaded: dict[str, Fingerprint]) -> int:
        problems: list[str] = []
        in_progress: deque[tuple[_OpenFile, BinaryIO, Any]] = deque()
        count, uploader = 0, None

        def finish_oldest() -> int:
            file, copy, upload = in_progress.popleft()
            with file, contextlib.closing(copy):
                problem = self._finish(file, upload)
            if problem:
                problems.append(f"{file.name}: {problem}")
            else:
                uploaded[file.name] = file.fingerprint
            return not problem

        for file in self._open_changed(uploaded):
            uploader = uploader or self._uploader()
            copy = file.open_reader()
            in_progress.append(
                (file, copy, uploader.upload(copy, self._bucket, f"{self._prefix}{file.name}"))
            )
            if len(in_progress) >= _MAX_PARALLEL_UPLOADS:
                count += finish_oldest()
        while in_progress:
            count += finish_oldest()
        if self._cancelled.is_set():
            problems.append("no time")
        self._problem = problems[0] if problems else ""
        return count

    def _finish(self, file: _OpenFile, upload: Any) -> str:
        """Wait for an upload; return an error text, empty if the file was uploaded unchanged."""
        while not upload.done():
            if self._cancelled.wait(0.05):
                upload.cancel()
                break
        try:
            upload.result()
        except Exception as error:  # s3transfer raises any exception of botocore
            return f"{error_code(error) or type(error).__name__}: {error}"
        return "" if file.is_unchanged() else "changed while it was uploaded"

    def _open_changed(self, uploaded: dict[str, Fingerprint]) -> Iterator[_OpenFile]:
        """Yield new and changed files, open; names that begin with a dot are skipped as incomplete."""
        for root, directories, names, directory_fd in os.fwalk(self._directory, follow_symlinks=False):
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            for name in sorted(names):
                if self._cancelled.is_set():
                    return
                if name.startswith("."):
                    continue
                path = str(Path(root, name).relative_to(self._directory))
                file = _open_regular_file(name, directory_fd, path)
                if file is None:
                    continue
                if uploaded.get(path) == file.fingerprint:
                    file.close()
                elif not _is_valid_key(f"{self._prefix}{path}"):
                    file.close()
                    log.warning(
                        "artifact skipped", file=repr(path), reason="S3 keys: at most 1,024 bytes of UTF-8"
                    )
                else:
                    yield file


class _OpenFile:
    """An open file: the checked file is the one that is read, even if its path is replaced."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name
        self.fingerprint = self._read_fingerprint()

    def __enter__(self) -> _OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_reader(self) -> BinaryIO:
        """Return a reader; s3transfer closes it after the upload, but not if the upload never starts."""
        return os.fdopen(os.dup(self._fd), "rb")

    def is_unchanged(self) -> bool:
        return self._read_fingerprint() == self.fingerprint

    def close(self) -> None:
        os.close(self._fd)

    def _read_fingerprint(self) -> Fingerprint:
        status = os.fstat(self._fd)
        return [status.st_size, status.st_ctime_ns, status.st_ino]


def _open_regular_file(name: str, directory_fd: int, path: str) -> _OpenFile | None:
    """Open a regular file of the open directory; None if it is a link, a pipe or missing."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return _OpenFile(fd, path)


def _is_valid_key(key: str) -> bool:
    try:
        return len(key.encode()) <= 1024
    except UnicodeEncodeError:
        return False

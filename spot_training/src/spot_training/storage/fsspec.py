"""Checkpoints in any object store that fsspec has an implementation for. fsspec is imported here only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from spot_training.errors import SpotTrainingError, one_line
from spot_training.storage.bounded import record_progress

T = TypeVar("T")


class FsspecObjects:
    """See ``Objects``: the objects below a URL such as ``gs://bucket/prefix`` or ``az://container/prefix``.

    A manifest is created with fsspec's mode ``create``, which is a conditional write where the
    implementation has one (s3fs, gcsfs); elsewhere the object is looked for first.
    """

    def __init__(self, url: str, file_system: Any = None) -> None:
        """``file_system``: an fsspec file system; default: that of the URL."""
        self._url = url.rstrip("/")
        self._fs, self._root = _file_system(self._url) if file_system is None else (file_system, _path(url))
        self._root = self._root.rstrip("/")

    @property
    def location(self) -> str:
        """See ``Objects``."""
        return self._url

    def keys(self, prefix: str) -> list[str]:
        """See ``Objects``."""

        def find() -> list[str]:
            self._fs.invalidate_cache()
            return [str(path) for path in self._fs.find(f"{self._root}/{prefix}".rstrip("/"))]

        try:
            paths = self._call(find)
        except FileNotFoundError:
            return []
        below = f"{self._root.lstrip('/')}/"
        keys = [path.lstrip("/").removeprefix(below) for path in paths]
        return [key for key in keys if key.startswith(prefix)]

    def get(self, key: str) -> str:
        """See ``Objects``."""
        content: bytes = self._call(lambda: self._fs.cat_file(self._path(key)))
        return content.decode()

    def put(self, key: str, text: str, *, is_new: bool) -> None:
        """See ``Objects``."""
        if is_new and self._call(lambda: self._fs.exists(self._path(key))):
            raise FileExistsError(f"{self.location}/{key} exists")
        mode = "create" if is_new else "overwrite"
        try:
            self._call(lambda: self._fs.pipe_file(self._path(key), text.encode(), mode=mode))
        except TypeError:  # an implementation without modes
            self._call(lambda: self._fs.pipe_file(self._path(key), text.encode()))

    def upload(self, path: Path, key: str) -> None:
        """See ``Objects``."""
        self._call(lambda: self._fs.put_file(str(path), self._path(key)))

    def download(self, key: str, path: Path) -> None:
        """See ``Objects``."""
        self._call(lambda: self._fs.get_file(self._path(key), str(path)))

    def delete(self, key: str) -> None:
        """See ``Objects``."""
        with contextlib.suppress(FileNotFoundError):
            self._call(lambda: self._fs.rm_file(self._path(key)))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _call(self, call: Callable[[], T]) -> T:
        """Call the store; raise ``OSError`` for its own kinds of errors."""
        record_progress()
        try:
            return call()
        except (OSError, TypeError):
            raise
        except Exception as error:
            raise OSError(f"{self.location}: {one_line(error)}") from error


def _path(url: str) -> str:
    return url.partition("://")[2]


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise SpotTrainingError(
            f"checkpoints in {url} need fsspec: pip install 'spot-training[fsspec]'"
        ) from None
    try:
        file_system, path = url_to_fs(url, skip_instance_cache=True)
    except (ImportError, ValueError) as error:
        raise SpotTrainingError(f"{url}: {one_line(error)}") from None
    return file_system, str(path)

"""The private key of a KMS key, made when it is first used: symmetric keys get one from moto, too."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from moto.kms import models
from moto.kms.utils import generate_private_key

from pulumi_on_moto.fixes.fix import Patch


class _PrivateKey:
    def __init__(self, key_spec: str) -> None:
        self._key_spec = key_spec

    @cached_property
    def _made(self) -> Any:
        return generate_private_key(self._key_spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


KEYS: Final[Patch] = (models, "generate_private_key", _PrivateKey)

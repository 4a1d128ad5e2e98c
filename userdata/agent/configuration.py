"""Reader of the agent's configuration file."""

from __future__ import annotations

from pathlib import Path

from contracts.agent import config
from contracts.agent.config import Config
from contracts.stored import ContractError
from userdata.agent.machine.errors import ConfigError


def load(path: Path) -> Config:
    """Return the configuration in the file at ``path``; raise ``ConfigError`` if it is invalid."""
    try:
        return config.parse(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ContractError as error:
        raise ConfigError(f"{path}: {error}") from None

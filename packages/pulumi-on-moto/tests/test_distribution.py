"""What Pulumi's Python host reads of the distribution."""

from __future__ import annotations

import importlib.util
import json
from importlib import metadata
from pathlib import Path


def test_the_language_host_downloads_no_provider_for_the_distribution() -> None:
    """It takes a distribution named ``pulumi-…`` for a provider's SDK unless a file in it says otherwise.

    Source: pulumi/pulumi, sdk/python/cmd/pulumi-language-python/main.go, ``pulumiPluginJSONPathsScript``.
    """
    module = metadata.distribution("pulumi-on-moto").metadata["Name"].replace("-", "_")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    [location] = spec.submodule_search_locations or []
    assert json.loads(Path(location, "pulumi-plugin.json").read_text("utf-8")) == {"resource": False}

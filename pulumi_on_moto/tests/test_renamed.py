"""Old public names are accepted for one minor version."""

from __future__ import annotations

import pytest

import pulumi_on_moto


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Draft", "ResourceRequest"),
        ("Made", "CreatedResource"),
        ("given_network", "existing_network"),
        ("given_policies", "existing_policies"),
    ],
)
def test_an_old_name_means_the_new_one_and_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(pulumi_on_moto, old) is getattr(pulumi_on_moto, new)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Drafts'"):
        pulumi_on_moto.Drafts  # noqa: B018

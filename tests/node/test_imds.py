from __future__ import annotations

import pytest

from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata, MetadataUnavailableError, is_warmed


def test_the_token_is_fetched_once_and_renewed_before_it_ends(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    for _ in range(3):
        assert metadata.lifecycle_state() == "InService"
    assert [r[0] for r in metadata_server.requests].count("PUT") == 1
    clock.advance(21600 - 200)
    assert metadata.lifecycle_state() == "InService"
    assert [r[0] for r in metadata_server.requests].count("PUT") == 2


def test_a_token_that_the_service_forgot_is_replaced(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata.lifecycle_state()
    metadata_server.tokens.clear()
    assert metadata.lifecycle_state() == "InService"
    assert [r[2] for r in metadata_server.requests][-3:] == [401, 200, 200]


def test_a_renewal_that_fails_leaves_the_old_token_in_use_while_it_holds(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata.lifecycle_state()
    clock.advance(21600 - 200)
    metadata_server.status, metadata_server.methods = 503, {"PUT"}
    assert metadata.lifecycle_state() == "InService"
    clock.advance(200)
    with pytest.raises(MetadataUnavailableError, match="status 503"):
        metadata.lifecycle_state()
    metadata_server.status = None
    assert metadata.lifecycle_state() == "InService"
    assert len(metadata_server.tokens) == 2


def test_no_document_is_not_no_service(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata = Metadata(clock, metadata_server.url)
    assert metadata.lifecycle_state() == ""
    metadata_server.close()
    with pytest.raises(MetadataUnavailableError):
        Metadata(clock, metadata_server.url).lifecycle_state()


def test_identity(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata_server.documents["/latest/dynamic/instance-identity/document"] = (
        '{"instanceId": "i-1", "availabilityZone": "us-west-2a", "region": "us-west-2", '
        '"instanceType": "g5.xlarge", "accountId": "123456789012", "more": 1}'
    )
    identity = Metadata(clock, metadata_server.url).identity()
    assert (identity.instance, identity.zone, identity.instance_type) == ("i-1", "us-west-2a", "g5.xlarge")
    assert identity.account == "123456789012"


@pytest.mark.parametrize(("state", "quiet"), [("Warmed:Stopped", True), ("InService", False), ("", False)])
def test_warmed(state: str, quiet: bool) -> None:
    assert is_warmed(state) is quiet

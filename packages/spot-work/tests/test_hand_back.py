"""What waits behind a long batch goes back; nothing does behind a short one, or once it has ended."""

from __future__ import annotations

import pytest

from spot_work import batching
from spot_work.batching import HandBack
from support.consumers import FakeConsumer


def test_only_behind_a_long_batch_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(batching.time, "monotonic", lambda: now)
    consumer = FakeConsumer()
    consumer.waiting_count = 2
    watch = HandBack(consumer)
    watch.check()
    with watch:
        now += batching.LONG_SECONDS - 0.01
        watch.check()
        assert consumer.calls == []
        now += 0.02
        watch.check()
        assert consumer.calls == ["hand back"]
        consumer.waiting_count = 0
        watch.check()
        assert consumer.calls == ["hand back"]
    consumer.waiting_count = 2
    watch.check()
    assert consumer.calls == ["hand back"]

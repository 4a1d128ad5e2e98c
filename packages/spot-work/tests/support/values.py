"""Values of requests, and a time."""

from __future__ import annotations

from hypothesis import strategies as st

NOW = 1_700_000_000.0
VALUES = st.one_of(
    st.binary(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)

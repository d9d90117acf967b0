"""Objects of any form with field names of access policies, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

_NAMES = [
    *("kind", "name", "namespace", "value", "names", "selector", "matchLabels", "matchExpressions", "key"),
    *("operator", "values", "user", "groups", "groupMapping", "days", "from", "to", "timeZone"),
]
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["Group", "In", "Mon", "*"])
)
ANYTHING = st.recursive(
    _LEAVES,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from([*_NAMES, 1, None]), below, max_size=4)
    ),
    max_leaves=12,
)

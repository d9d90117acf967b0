"""Records as objects, and their names."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.host.host_object import ClusterCodec
from tower.errors import Invalid
from tower.store.kinds import KINDS
from tower.store.kubernetes.host_kinds import own_codecs
from tower.store.kubernetes.merge_patch import merge_patch
from tower.store.kubernetes.object_codec import normal
from tower.store.kubernetes.object_names import NAME, object_name, record_name
from tower.store.records import encode
from tower.web.api.writes.cluster_object import merge

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Hypothesis leaves out surrogates by default.
    | st.text(st.characters(codec=None), max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)
_OBJECT = st.dictionaries(st.text(max_size=3), _JSON, max_size=4)


def _through_go(obj: Any) -> Any:
    """Return *obj* as an API server returns it: whole numbers without a fraction, no surrogates."""
    text = json.dumps(obj, ensure_ascii=False).encode("utf-8", "replace").decode()

    def number(digits: str) -> float:
        found = float(digits)
        return int(found) if found.is_integer() and abs(found) < 1e21 else found

    return json.loads(text, parse_float=number)


def _names() -> st.SearchStrategy[str]:
    plain = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,70}[a-z0-9])?", fullmatch=True)
    return st.text(st.characters(codec=None), min_size=1, max_size=300) | plain


class NameTests(SynchronousTestCase):
    """Names of objects."""

    @settings(max_examples=50, deadline=None)
    @given(_names())
    def test_reversible(self, name: str) -> None:
        """Every name becomes a valid one, and is found again."""
        for codec in own_codecs():
            obj = codec.merged(None, name, {"a": 1})
            stored = obj["metadata"]["name"]
            self.assertRegex(stored, r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
            self.assertLessEqual(len(stored), 253)
            self.assertEqual(stored, codec.object_name(name))
            found = codec.record(_through_go(obj))
            self.assertEqual(found, (name, {"a": 1}))

    def test_plain(self) -> None:
        """Names that are valid stay readable; names like digests are not confused with them."""
        self.assertEqual(object_name("6000"), "6000")
        self.assertEqual(object_name("last-seen-3", "tower-x-"), "tower-x-last-seen-3")
        digest = object_name("a/b")
        self.assertNotEqual(object_name(digest), digest)

    def test_foreign(self) -> None:
        """An object whose annotation does not fit its name is rejected."""
        for name, text in (("n-1", "a/b"), (object_name("a/b"), "a/c"), ("x", '"'), ("x", "\\ud8")):
            metadata = {"name": name, "annotations": {NAME: text}}
            self.assertRaises(Invalid, record_name, metadata)
        self.assertRaises(Invalid, record_name, {"name": object_name("a/b")})


class CodecTests(SynchronousTestCase):
    """Codecs of Tower's own kinds."""

    def test_kinds(self) -> None:
        """There is one codec for each kind."""
        self.assertEqual(sorted(codec.kind for codec in (ClusterCodec(), *own_codecs())), sorted(KINDS))
        types = {codec.resource.name for codec in (ClusterCodec(), *own_codecs())}
        self.assertEqual(len(types), len(KINDS))

    @settings(max_examples=50, deadline=None)
    @given(_OBJECT)
    def test_values(self, value: dict[str, Any]) -> None:
        """Any value survives, once it is normalized; writing it again changes nothing."""
        wanted = normal(value)
        self.assertEqual(wanted, value)
        self.assertEqual(encode(normal(wanted)), encode(wanted))
        for codec in (own_codecs()[0], own_codecs()[-1]):
            found = codec.record(_through_go(codec.merged(None, "a", wanted)))
            assert found is not None
            self.assertEqual(encode(found[1]), encode(wanted))

    def test_others(self) -> None:
        """Labels and annotations of other programs stay."""
        for codec in own_codecs():
            obj = codec.merged(None, "a/b", {"n": 1})
            obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), "x": "y"}
            obj["metadata"]["annotations"]["z"] = "z"
            again = codec.merged(codec.kept(obj), "a/b", {"n": 2})
            self.assertEqual(again["metadata"], obj["metadata"])
            self.assertEqual(codec.record(again), ("a/b", {"n": 2}))

    def test_malformed(self) -> None:
        """Damaged objects are rejected with the cure."""
        setting, secret = own_codecs()[0], own_codecs()[-1]
        parts: list[dict[str, Any]] = [
            {"spec": 7},
            {"spec": []},
            {"encoded": "{"},
            {"encoded": "7"},
            {"encoded": 7},
        ]
        for part in parts:
            error = self.assertRaises(Invalid, setting.record, {"metadata": {"name": "a"}, **part})
            self.assertIn("delete this object", str(error))
        for data in ({}, {"record": "!"}, {"record": "e30"}, {"record": "W10="}, {"record": "/w=="}):
            obj = {"metadata": {"name": "tower-memberaccess-a"}, "data": data}
            self.assertRaises(Invalid, secret.record, obj)


class MergePatchTests(SynchronousTestCase):
    """Patches between two objects."""

    @settings(max_examples=50, deadline=None)
    @given(_OBJECT, _OBJECT)
    def test_leads_to_the_other(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """The patch leads from one object to the other; without a difference it is empty."""
        old, new = _without_nulls(old), _without_nulls(new)
        self.assertEqual(
            json.dumps(merge(old, merge_patch(old, new)), sort_keys=True), json.dumps(new, sort_keys=True)
        )
        self.assertEqual(merge_patch(new, new), {})

    def test_nulls_of_others(self) -> None:
        """Nulls in unknown fields are not touched."""
        old = {"a": {"b": None, "c": 1}, "d": None}
        self.assertEqual(merge_patch(old, {"a": {"b": None, "c": 2}, "d": None}), {"a": {"c": 2}})


def _without_nulls(value: Any) -> Any:
    """Return *value* without nulls in objects, as Tower writes it."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value

"""JSON patches."""

from __future__ import annotations

import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Invalid
from tower.kube.status import StatusError
from tower.web.api.fields.json_patch import (
    COPY_LIMIT,
    ITEM_LIMIT,
    OPERATION_LIMIT,
    POINTER_LIMIT,
    STEP_LIMIT,
    apply_json_patch,
)


def step(op: str, path: str, **more: Any) -> dict[str, Any]:
    """Return one operation; `source` is its `from`."""
    if "source" in more:
        more["from"] = more.pop("source")
    return {"op": op, "path": path, **more}


class JSONPatchTests(SynchronousTestCase):
    """The examples of RFC 6902, appendix A, and the limits."""

    def test_examples(self) -> None:
        """Each operation has the result of the RFC."""
        for old, patch, new in (
            ({"foo": "bar"}, [step("add", "/baz", value="qux")], {"baz": "qux", "foo": "bar"}),
            ({"foo": ["bar", "baz"]}, [step("add", "/foo/1", value="q")], {"foo": ["bar", "q", "baz"]}),
            ({"baz": "qux", "foo": "bar"}, [step("remove", "/baz")], {"foo": "bar"}),
            ({"foo": ["bar", "qux", "baz"]}, [step("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
            ({"baz": "qux"}, [step("replace", "/baz", value="boo")], {"baz": "boo"}),
            (
                {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
                [step("move", "/qux/thud", source="/foo/waldo")],
                {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
            ),
            (
                {"foo": ["all", "cows", "eat"]},
                [step("move", "/foo/2", source="/foo/1")],
                {"foo": ["all", "eat", "cows"]},
            ),
            (
                {"baz": "qux", "foo": ["a", 2]},
                [step("test", "/foo/1", value=2)],
                {"baz": "qux", "foo": ["a", 2]},
            ),
            (
                {"foo": "bar"},
                [step("add", "/child", value={"grandchild": {}})],
                {"foo": "bar", "child": {"grandchild": {}}},
            ),
            ({"/": 9, "~1": 10}, [step("test", "/~01", value=10)], {"/": 9, "~1": 10}),
            ({"foo": ["bar"]}, [step("add", "/foo/-", value=["abc"])], {"foo": ["bar", ["abc"]]}),
            ({"a": 1}, [step("copy", "/b", source="/a")], {"a": 1, "b": 1}),
            ({"a": 1}, [step("replace", "", value={"b": 2})], {"b": 2}),
            ({"a": [1]}, [step("replace", "/a/0", value=2)], {"a": [2]}),
            ({"a": 1}, [step("replace", "/b", value=2)], {"a": 1, "b": 2}),
        ):
            self.assertEqual(apply_json_patch(old, patch), new)

    def test_unchanged(self) -> None:
        """The patched value itself stays unchanged, even if an operation fails."""
        old: dict[str, Any] = {"a": {"b": [1]}}
        self.assertRaises(
            Invalid, apply_json_patch, old, [step("add", "/a/b/0", value=0), step("remove", "/a/c")]
        )
        self.assertEqual(old, {"a": {"b": [1]}})

    def test_cannot_be_applied(self) -> None:
        """Missing paths and failing tests are errors that name the path."""
        old = {"a": [1], "b": {"c": 1}, "t": True}
        for operation in (
            step("remove", "/x"),
            step("replace", "/a/1", value=1),
            step("replace", "/x/y", value=1),
            step("add", "/x/y", value=1),
            step("add", "/a/2", value=1),
            step("add", "/a/01", value=1),
            step("add", "/t/x", value=1),
            step("remove", "/a/-"),
            step("test", "/b/c", value=2),
            step("test", "/t", value=1),
            step("test", "/x", value=None),
            step("move", "/b/c/d", source="/b"),
            step("copy", "/x", source="/y"),
        ):
            error = self.assertRaises(Invalid, apply_json_patch, old, [operation])
            self.assertIn("/", str(error))

    def test_malformed(self) -> None:
        """Malformed patches are rejected."""
        malformed: tuple[Any, ...] = (
            {},
            ["x"],
            [step("add", "/a")],
            [step("add", "a", value=1)],
            [step("grow", "/a")],
            [{}],
        )
        for patch in malformed:
            self.assertRaises(StatusError, apply_json_patch, {"a": 1}, patch)
        self.assertRaises(
            StatusError, apply_json_patch, {}, [step("add", "/a", value=1)] * (OPERATION_LIMIT + 1)
        )

    def test_copies_are_limited(self) -> None:
        """A few operations cannot double a value repeatedly."""
        patch = [step("copy", f"/a/{n}", source="/a") for n in range(100)]
        error = self.assertRaises(Invalid, apply_json_patch, {"a": {"x": "y" * 1000}}, patch)
        self.assertIn(str(COPY_LIMIT), str(error))

    def test_same_patch_twice(self) -> None:
        """A patch stays unchanged when it is applied, because a write applies it again after a conflict."""
        patch = [step("add", "/a", value=[]), step("add", "/a/-", value="x"), step("add", "/a/0", value={})]
        for _ in range(2):
            self.assertEqual(apply_json_patch({}, patch), {"a": [{}, "x"]})

    def test_paths_are_limited(self) -> None:
        """A path with many steps or characters is rejected, and the text names both limits."""
        for path in ("/a" * (STEP_LIMIT + 1), "/" + "a" * POINTER_LIMIT):
            error = self.assertRaises(StatusError, apply_json_patch, {}, [step("add", path, value=1)])
            self.assertIn(f"at most {POINTER_LIMIT} and {STEP_LIMIT} are allowed", str(error))
        deep: Any = {}
        for _ in range(STEP_LIMIT - 1):
            deep = {"a": deep}
        self.assertEqual(apply_json_patch(deep, [step("test", "/a" * (STEP_LIMIT - 1), value={})]), deep)

    def test_long_lists(self) -> None:
        """Inserts into a long list are rejected at the first one; a list of the limit is changed."""
        for length, count in ((ITEM_LIMIT, 1), (150_000, OPERATION_LIMIT - 1)):
            patch = [step("add", "/a", value=[0] * length)] + [step("add", "/a/0", value=1)] * count
            began = time.process_time()
            if length <= ITEM_LIMIT:
                self.assertEqual(len(apply_json_patch({}, patch)["a"]), length + 1)
            else:
                error = self.assertRaises(Invalid, apply_json_patch, {}, patch)
                self.assertIn(f"more than {ITEM_LIMIT} items: /a", str(error))
            self.assertLess(time.process_time() - began, 0.2)
        self.assertRaises(Invalid, apply_json_patch, {"a": [0] * 20_000}, [step("remove", "/a/0")])

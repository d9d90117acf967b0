"""Long JSON, value by value."""

from __future__ import annotations

import json
import random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers

from tower.cloud.errors import CloudError
from tower.cloud.http.answer import Answer
from tower.cloud.http.json_stream import ANY, EACH, Path, Shape, walk

LIST: dict[Path, Shape] = {(): dict, ("items",): list, ("items", EACH): {"n": int}, ("next",): str}
SCOPES: dict[Path, Shape] = {
    (): dict,
    ("items",): dict,
    ("items", ANY): dict,
    ("items", ANY, "here"): list,
    ("items", ANY, "here", EACH): {},
}


def answer(body: bytes) -> Answer:
    """Return an answer with a body."""
    return Answer(200, Headers({}), body, "https://c.example/x")


def walked(body: bytes, shapes: dict[Path, Shape]) -> list[tuple[Path, Any]]:
    """Return all that comes of it."""
    return list(walk(answer(body), shapes))


class WalkTests(SynchronousTestCase):
    """Values and their order."""

    def test_list(self) -> None:
        """Listed values are yielded, a list empty before its items; all others are skipped."""
        body = b'\xef\xbb\xbf { "kind" : [1, {"a": []}], "items":[ {"n":1} ,{"n" : 2, "m": "\\u00e9"}], '
        body += b'"next":"t"}\n'
        wanted = [((), {}), (("items",), []), (("items", EACH), {"n": 1})]
        wanted += [(("items", EACH), {"n": 2, "m": "é"}), (("next",), "t")]
        self.assertEqual(walked(body, LIST), wanted)

    def test_any(self) -> None:
        """An object's members may all be alike; their names are in the paths."""
        body = b'{"items": {"a/b": {"here": [{"x": 1}]}, "c": {"there": 1}, "d": {}}}'
        found = walked(body, SCOPES)
        self.assertIn((("items", "a/b", "here", EACH), {"x": 1}), found)
        self.assertEqual([path[1] for path, _ in found if len(path) == 2], ["a/b", "c", "d"])

    def test_null(self) -> None:
        """Null fields are skipped; null items of lists are errors."""
        self.assertEqual(walked(b'{"items": null, "next": null}', LIST), [((), {})])
        self.assertRaises(CloudError, walked, b'{"items": [null]}', LIST)

    def test_misfit(self) -> None:
        """A value of another shape is an error with the URL, without a quote."""
        for body in (
            b"[]",
            b"1",
            b'{"items": {}}',
            b'{"items": [{"n": "secret"}]}',
            b'{"next": {"secret": 1}}',
        ):
            error = self.assertRaises(CloudError, walked, body, LIST)
            self.assertEqual(str(error), "https://c.example/x answered 200 with JSON of an unexpected form")

    def test_no_json(self) -> None:
        """Incomplete JSON is an error, also after valid values."""
        good = b'{"items": [{"n": 1}, {"n": 2}], "next": "t"}'
        cut = [good[:end] for end in range(len(good))]
        for body in (
            *cut,
            good + b"}",
            good.replace(b",", b" "),
            good.replace(b":", b" "),
            good.replace(b'"next"', b"1"),
            b'{"items": [{"n": 1},]}',
            b'{"items": [], }',
            b'{"items": ' + b"[" * 100_000,
            b'{"other": ' + b"[" * 100_000,
            b"\xff\xff\xff\xff",
        ):
            error = self.assertRaises(CloudError, walked, body, LIST)
            self.assertIn("answered", str(error))

    def test_as_json(self) -> None:
        """Any JSON is read, with or without blanks."""
        chance = random.Random(8)
        for _ in range(200):
            items = [
                {"n": chance.randrange(9), "é": [{}, [], None, ']}\\"']} for _ in range(chance.randrange(4))
            ]
            whole = {"other": {"items": [1]}, "items": items, "next": chance.choice(("", "]}"))}
            text = json.dumps(whole, indent=chance.choice((None, 0, 3)), ensure_ascii=chance.random() < 0.5)
            encoding = chance.choice(("utf-8", "utf-8-sig", "utf-16", "utf-32"))
            found = walked(text.encode(encoding), LIST)
            self.assertEqual([value for path, value in found if path == ("items", EACH)], items)
            self.assertEqual(found[-1], (("next",), whole["next"]))

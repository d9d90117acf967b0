"""Tests of `tower.web.api.calls.call`."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeRequest, fields_with
from tower.kube.status import StatusError
from tower.web.api.calls.call import Call, call_of


def parsed(path: bytes, query: bytes = b"", **lines: bytes) -> Call:
    """Return a parsed request."""
    return call_of(FakeRequest(path + b"?" + query, fields=fields_with(**lines)))


class CallTests(SynchronousTestCase):
    """Parsing of requests."""

    def test_parts(self) -> None:
        """Path, query and headers."""
        call = parsed(
            b"/apis/g/v1/clusters/",
            b"watch=1&labelSelector=a%3Db&watch=0&empty=",
            accept=b"text/plain",
            content_type=b"application/json",
        )
        self.assertEqual(call.segments, ("apis", "g", "v1", "clusters"))
        self.assertEqual(call.query, {"watch": "1", "labelSelector": "a=b", "empty": ""})
        self.assertEqual((call.accept, call.content_type), ("text/plain", "application/json"))

    def test_flags(self) -> None:
        """A flag without a value is set; false and 0 are not."""
        for value, expected in (("", True), ("true", True), ("1", True), ("false", False), ("0", False)):
            self.assertEqual(Call("GET", (), {"watch": value}).flag("watch"), expected)
        self.assertFalse(Call("GET", ()).flag("watch"))

    def test_bad_queries(self) -> None:
        """A query that is not UTF-8, or too long, is rejected."""
        for query in (b"a=%ff", b"&".join(b"a%d=1" % n for n in range(65))):
            with self.assertRaises(StatusError) as caught:
                parsed(b"/apis", query)
            self.assertEqual(caught.exception.code, 400)

    def test_write_options(self) -> None:
        """All values of `dryRun` count, so a second one that is invalid is rejected, too."""
        self.assertTrue(parsed(b"/apis", b"dryRun=All&dryRun=All").dry_run)
        self.assertFalse(parsed(b"/apis").dry_run)
        self.assertEqual(parsed(b"/apis", b"fieldValidation=").field_validation, "Warn")
        for method, query, text in (
            (
                "POST",
                b"dryRun=All&dryRun=Some",
                'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported ',
            ),
            ("PUT", b"dryRun=", 'UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: [""]'),
            (
                "PATCH",
                b"fieldValidation=x&dryRun=All",
                'PatchOptions.meta.k8s.io "" is invalid: fieldValidation',
            ),
        ):
            with self.assertRaises(StatusError) as caught:
                evolve(parsed(b"/apis", query), method=method).check_write_options()
            self.assertEqual(caught.exception.code, 422)
            self.assertIn(text, caught.exception.message)

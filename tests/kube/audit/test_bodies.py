"""Tests of `tower.kube.audit.bodies`."""

from __future__ import annotations

import gzip
import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.audit.bodies import DECODED_LIMIT, are_recorded, body_of, withheld
from tower.kube.audit.policy import METADATA, REQUEST, REQUEST_RESPONSE, AuditDecision
from tower.kube.request_info import parse_request_info

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "demo", "uid": "u", "managedFields": [{}]}}
OWN = b"/apis/cluster.kubesphere.io/v1alpha1/"


class BodyTests(SynchronousTestCase):
    """Tests of `body_of`."""

    def read(self, payload: bytes, media: str = "application/json", encoding: str = "", **more: bool) -> Any:
        """Return the body."""
        return body_of(payload, media, encoding, omits_managed_fields=more.get("omits", False))

    def test_json(self) -> None:
        """JSON becomes JSON in one line, with the object's metadata."""
        found = self.read(json.dumps(POD, indent=2).encode(), "application/json; charset=utf-8")
        self.assertEqual((json.loads(found.text), "\n" in found.text), (POD, False))
        self.assertEqual(found.metadata, {"name": "p", "namespace": "demo", "uid": "u"})
        patch = self.read(b'[{"op": "remove", "path": "/x"}]', "application/json-patch+json")
        self.assertEqual(json.loads(patch.text), [{"op": "remove", "path": "/x"}])
        applied = self.read(b'{"metadata": {"name": "x"}}', "application/apply-patch+yaml")
        self.assertEqual(applied.text, '{"metadata":{"name":"x"}}')
        self.assertEqual(self.read(gzip.compress(b'{"a":1}'), encoding="gzip").text, '{"a":1}')

    def test_managed_fields(self) -> None:
        """Managed fields of objects, lists and tables are left out on request."""
        self.assertNotIn("managedFields", self.read(json.dumps(POD).encode(), omits=True).text)
        for value in ({"kind": "PodList", "items": [POD]}, {"kind": "Table", "rows": [{"object": POD}]}):
            text = self.read(json.dumps(value).encode(), omits=True).text
            self.assertNotIn("managedFields", text)
            self.assertIn('"name":"p"', text)
            self.assertIn("managedFields", self.read(json.dumps(value).encode()).text)
        odd: Any
        for odd in ([], {"items": 3}, {"metadata": []}, {"rows": [3, {"object": None}]}):
            self.assertEqual(json.loads(self.read(json.dumps(odd).encode(), omits=True).text), odd)

    def test_omitted(self) -> None:
        """Other bodies are left out, with the reason."""
        deep = b"[" * 100_000
        for payload, media, encoding, reason in (
            (b"k8s\0x", "application/vnd.kubernetes.protobuf", "", "media type application/vnd.kube"),
            (b"{}", "application/json", "br", "content coding br"),
            (b"{}", "application/json", "gzip", "content coding gzip"),
            (gzip.compress(bytes(DECODED_LIMIT + 1)), "application/json", "gzip", "content coding gzip"),
            (b"{", "application/json", "", "not an object"),
            (b'{"a": NaN}', "application/json", "", "not an object"),
            (b'{"a": -1e999}', "application/json", "", "not an object"),
            (b"3", "application/json", "", "not an object"),
            (b"\xff", "application/json", "", "not an object"),
            (deep, "application/json", "", "not an object"),
            (b"metadata:\n  name: x\n", "application/apply-patch+yaml", "", "not an object"),
        ):
            found = self.read(payload, media, encoding)
            self.assertEqual(
                (found.text, found.omitted.startswith(reason)), ("", True), (payload[:20], found)
            )
        self.assertEqual(self.read(b""), self.read(b"", "text/plain"))


class SecretTests(SynchronousTestCase):
    """Tests of `withheld` and `are_recorded`."""

    def test_withheld(self) -> None:
        """Bodies with secrets need a rule that names them; Tower's own credentials are never recorded."""
        named, general = AuditDecision(REQUEST, is_explicit=True), AuditDecision(REQUEST)
        for method, target, resource in (
            (b"GET", b"/api/v1/secrets", "secrets"),
            (b"PATCH", b"/api/v1/namespaces/x/configmaps/y", "configmaps"),
            (b"POST", b"/api/v1/namespaces/x/serviceaccounts/y/token", "serviceaccounts/token"),
            (b"POST", b"/apis/authentication.k8s.io/v1/tokenreviews", "tokenreviews"),
            (b"PUT", b"/api/v1/namespaces/x/secrets/y/status", "secrets/status"),
        ):
            info = parse_request_info(method, target)
            self.assertEqual((withheld(general, info), withheld(named, info)), (resource, ""))
        for target in (
            *(b"jointokens", b"clusters/alpha/kubeconfigs", b"kubeconfigs", b"clusters"),
            *(b"clusters/alpha/status", b"clusters/alpha/trustedcallers", b"clusters/alpha/jointokens"),
        ):
            info = parse_request_info(b"POST", OWN + target)
            self.assertTrue(withheld(named, info))
        self.assertEqual(withheld(general, parse_request_info(b"GET", b"/api/v1/pods")), "")

    def test_recorded(self) -> None:
        """There are bodies only at the levels for them, and only of requests for objects."""
        pods, paths = b"/api/v1/namespaces/x/pods/p", AuditDecision(REQUEST_RESPONSE)
        for target, is_recorded in (
            (pods, True),
            (pods + b"/exec", False),
            (pods + b"/log", False),
            (pods + b"?watch=1", True),
            (b"/api/v1/pods?watch=1", False),
            (b"/healthz", False),
        ):
            self.assertEqual(are_recorded(paths, parse_request_info(b"GET", target)), is_recorded, target)
        self.assertFalse(are_recorded(AuditDecision(METADATA), parse_request_info(b"GET", pods)))

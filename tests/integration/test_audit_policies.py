"""Audit policies: a real kube-apiserver and Tower write the same events; `test_bad_options` has wrong files.

Each request is sent twice, to the API server and to Tower in front of the same API server, with different
IDs, by which the events are found.  `DIFFERENT` has the requests whose events differ, with the reasons.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections import defaultdict
from typing import Any

from tests.fakes.protobuf import PROTOBUF
from tests.integration import audit_cases as cases
from tests.integration import harness
from tests.integration.member import Running

TOKENS = 'jane-token,jane,,"dev"\n'

#: Compared fields of events.
FIELDS = ("level", "verb", "requestURI", "user", "impersonatedUser", "objectRef", "responseStatus")
BODIES = ("requestObject", "responseObject")

#: Metadata of objects that each request has its own values of.
OWN = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields"})


def comparable(value: Any) -> Any:
    """Return a body without the metadata that differ from request to request."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: comparable(each) for key, each in value.items()}
    if isinstance(found.get("metadata"), dict):
        found["metadata"] = {key: each for key, each in found["metadata"].items() if key not in OWN}
    return found


class EventTests(harness.TowerTestCase):
    """Events of the same requests."""

    maxDiff = None

    def setUp(self) -> None:
        """Start an API server and Tower with the same policy and the same users."""
        super().setUp()
        running = Running(
            self.folder / "cluster",
            "--bare",
            f"--apiserver-flag=audit-policy-file={self.policy}",
            f"--apiserver-flag=token-auth-file={self.tokens}",
        )
        (self.folder / "cluster").mkdir()
        self.addCleanup(running.stop)
        running.start()
        self.member = running.member
        self.tower.add("alpha", self.member.agent)
        group = "rbac.authorization.k8s.io"
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": "all"}
        jane = {"apiGroup": group, "kind": "User", "name": "jane"}
        access = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": {"names": ["alpha"]}}
        self.create("cluster.kubesphere.io/v1alpha1", "AccessPolicy", "accesspolicies", spec=access)
        self.create(f"{group}/v1", "ClusterRole", "clusterroles", rules=cases.RIGHTS)
        self.create(
            f"{group}/v1", "ClusterRoleBinding", "clusterrolebindings", roleRef=reference, subjects=[jane]
        )

    def create(self, version: str, kind: str, plural: str, **content: Any) -> None:
        """Create an object of Tower's own API."""
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "all"}, **content}
        made = self.tower.admin().request(
            "POST",
            f"/apis/{version}/{plural}",
            body=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        self.assertEqual(made.status, 201, made.body)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the policy."""
        tower = super().new_tower()
        self.policy, self.tokens = self.folder / "policy.yaml", self.folder / "tokens.csv"
        self.policy.write_text(cases.POLICY)
        self.tokens.write_text(TOKENS)
        self.place = self.folder / "audit.log"
        tower.proxy = tower.proxy_program(
            f"--audit-log-path={self.place}",
            f"--audit-policy-file={self.policy}",
            f"--token-auth-file={self.tokens}",
        )
        return tower

    def send(self, address: str, prefix: str, identifier: str, case: cases.Case) -> int:
        """Send a request; return the status."""
        host, _, port = address.rpartition(":")
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        fields = {
            "Authorization": "Bearer jane-token",
            "Audit-ID": identifier,
            "User-Agent": "test",
            **case.fields,
        }
        if case.body:
            fields["Content-Type"] = case.media
        body = case.body.encode() if isinstance(case.body, str) else case.body
        try:
            connection.request(case.method, prefix + case.path, body or None, fields)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def test_same(self) -> None:
        """The events have the same fields, except for the differences in the table."""
        front_door = f"{self.tower.host}:{self.tower.secure_port}"
        statuses = [
            [self.send(*to, f"{name}-{number}", case) for number, case in enumerate(cases.CASES)]
            for name, to in (
                ("direct", (self.member.service, "")),
                ("tower", (front_door, "/clusters/alpha")),
            )
        ]
        self.assertEqual(*statuses)
        self.tower.stop()
        ours = self.by_request([json.loads(line) for line in self.place.read_bytes().splitlines()])
        theirs = self.by_request(self.member.audit())
        different = set()
        for number, case in enumerate(cases.CASES):
            first, second = theirs[f"direct-{number}"], ours[f"tower-{number}"]
            self.assertEqual((case, list(first)), (case, list(second)))
            for stage in first:
                for field in (*FIELDS, *BODIES):
                    values = [self.value(each[stage], field) for each in (first, second)]
                    if values[0] != values[1]:
                        different.add((case.method, case.path, field))
                        known = (
                            stage == "ResponseComplete" and (case.method, case.path, field) in cases.DIFFERENT
                        )
                        self.assertTrue(known, (case, stage, field, values))
        self.assertEqual(different, cases.DIFFERENT)
        reasons = [
            event["annotations"].get("cluster.kubesphere.io/request-body")
            for events in ours.values()
            for event in events.values()
        ]
        self.assertEqual(set(reasons), {None, f"omitted: media type {PROTOBUF}"})
        levels = {event["level"] for events in ours.values() for event in events.values()}
        self.assertEqual(levels, {"Metadata", "Request", "RequestResponse"})

    def by_request(self, events: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return events by request and stage."""
        found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        for event in events:
            if event["user"]["username"] == "jane":
                found[event["auditID"]][event["stage"]] = event
        return found

    def value(self, event: dict[str, Any], field: str) -> Any:
        """Return a field of an event in the form in which it is compared."""
        found = event.get(field)
        if field in BODIES:
            return comparable(found)
        if field == "requestURI":
            return str(found).removeprefix("/clusters/alpha")
        if field == "responseStatus" and found is not None:
            found.get("details", {}).pop("uid", None)
        return found

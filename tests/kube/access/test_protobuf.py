"""Tests of `tower.kube.access.protobuf`: events; reviews are in `test_reviews`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.protobuf import read_protobuf
from tower.kube.status import StatusError


def encoded(**fields: bytes | str | int) -> bytes:
    """Return a protobuf message; `f3` is field 3."""
    data = b""
    for name, value in fields.items():
        number = int(name[1:]) << 3
        if isinstance(value, int):
            data += bytes((number,)) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            data += bytes((number | 2,)) + varint(len(raw)) + raw
    return data


def varint(value: int) -> bytes:
    """Return a number in 7 bits a byte; a negative one has 64 bits."""
    value &= (1 << 64) - 1
    data = b""
    while value > 0x7F:
        data += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return data + bytes((value,))


def event(version: str, body: bytes, kind: str = "Event") -> bytes:
    """Return an object as client-go sends it."""
    return b"k8s\x00" + encoded(f1=encoded(f1=version, f2=kind), f2=body, f3="", f4="")


CLUSTER = encoded(f1="Cluster", f3="alpha", f4="uid-1", f5="cluster.kubesphere.io/v1alpha1")
FOUND = {
    "kind": "Cluster",
    "name": "alpha",
    "uid": "uid-1",
    "apiVersion": "cluster.kubesphere.io/v1alpha1",
}
META = encoded(f1="alpha.1", f3="default", f15=b"labels")


class EventTests(SynchronousTestCase):
    """Events of both groups."""

    def test_newer(self) -> None:
        """An event of `events.k8s.io`, with fields that Tower does not read."""
        series = encoded(f1=7, f2=encoded(f1=1_790_000_000))
        body = encoded(f1=META, f2=encoded(f1=5), f3=series, f4="argocd", f5="pod-1", f6="Sync")
        body += encoded(f7="Synced", f8=CLUSTER, f10="Done.", f11="Normal", f15=-1)
        self.assertEqual(
            read_protobuf(event("events.k8s.io/v1", body)),
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "alpha.1", "namespace": "default"},
                "series": {"count": 7},
                "reportingController": "argocd",
                "reason": "Synced",
                "regarding": FOUND,
                "note": "Done.",
                "type": "Normal",
                "deprecatedCount": -1,
            },
        )

    def test_core(self) -> None:
        """An event of the core group."""
        body = encoded(f1=META, f2=CLUSTER, f3="Synced", f4="Done.", f5=encoded(f1="argocd"), f8=300)
        self.assertEqual(
            read_protobuf(event("v1", body)),
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "alpha.1", "namespace": "default"},
                "involvedObject": FOUND,
                "reason": "Synced",
                "message": "Done.",
                "source": {"component": "argocd"},
                "count": 300,
            },
        )

    def test_malformed(self) -> None:
        """Other kinds, wrong types and cut messages are rejected."""
        body = encoded(f2=CLUSTER, f3="Synced")
        whole = event("v1", body)
        for raw in (
            event("v2", body),
            event("v1", body, "Pod"),
            event("v1", encoded(f2=1)),
            event("v1", encoded(f3=b"\xff")),
            b"k8s\x00" + encoded(f1=1),
            b"k8s\x00" + encoded(f1=encoded(f1=1, f2=2)),
            b"k8s\x00" + encoded(f1=encoded(f1="v1", f2="Event"), f2=3),
            event("v1", b"\x40" + b"\xff" * 11),
            *(whole[:length] for length in range(5, 12)),
        ):
            error = self.assertRaises(StatusError, read_protobuf, raw)
            self.assertEqual(error.code, 400)
            self.assertIn("send JSON", error.message)

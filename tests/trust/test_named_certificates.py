"""Tests of `tower.trust.named_certificates`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW, authority
from tower.trust.named_certificates import NamedCertificate, PairFiles, by_name, names_of, read_pair


class NamedCertificatesTests(SynchronousTestCase):
    def test_options(self) -> None:
        """Files, and names after a colon, as for kube-apiserver."""
        for text, names in (
            ("a.crt,a.key", ()),
            (" a.crt , a.key ", ()),
            ("a.crt,a.key:Foo.example", ("foo.example",)),
            ("a.crt,a.key: *.example.org , b", ("*.example.org", "b")),
        ):
            self.assertEqual(read_pair(text), PairFiles(Path("a.crt"), Path("a.key"), names))
        for text, problem in (
            ("a.crt", "expected comma separated certificate and key file paths: give"),
            ("a.crt,a.key,b", "expected comma separated certificate and key file paths"),
            ("a.crt,", "expected comma separated certificate and key file paths"),
            ("a.crt,a.key:", "empty names list is not allowed"),
            ("a.crt,a.key:192.0.2.1", "clients do not send addresses"),
            ("a.crt,a.key:::1", "clients do not send addresses"),
            ("a.crt,a.key:a b", "has the name 'a b'"),
            ("a.crt,a.key:*.*.b", "has the name '*.*.b'"),
            ("a.crt,a.key:a,,b", "has the name ''"),
        ):
            with self.assertRaises(ValueError) as caught:
                read_pair(text)
            self.assertIn(problem, str(caught.exception))

    def test_names_of_a_certificate(self) -> None:
        """The common name if it is a host name, and the alternative names, without addresses."""
        issued = authority().server_certificate(["A.example", "192.0.2.1"], DAY, NOW)
        self.assertEqual(names_of(issued.certificate_pem), ("tower", "a.example"))
        self.assertRaises(ValueError, names_of, b"")

    def test_order(self) -> None:
        """Given names precede those of certificates, and earlier certificates precede later ones."""
        first = NamedCertificate(b"1", b"", ("a", "b", "door.example", "*.example"), False)
        second = NamedCertificate(b"2", b"", ("b",), True)
        third = NamedCertificate(b"3", b"", ("b", "c"), True)
        found = by_name([first, second, third], ["door.example", "192.0.2.1"])
        self.assertEqual(
            {name: each.certificate for name, each in found.items()}, {"a": b"1", "b": b"2", "c": b"3"}
        )

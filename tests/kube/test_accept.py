"""Tests for `tower.kube.accept`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.accept import choose, parse_clause

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class ChooseTests(SynchronousTestCase):
    """`choose` picks among our offers."""

    def test_nothing_asked(self) -> None:
        """Without an Accept header the first offer is taken."""
        self.assertEqual(choose("", [JSON, TABLE]), JSON)

    def test_kubectl_get(self) -> None:
        """The header of kubectl get selects the table."""
        accept = (
            "application/json;as=Table;v=v1;g=meta.k8s.io,"
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
        )
        self.assertEqual(choose(accept, [JSON, TABLE]), TABLE)

    def test_falls_through(self) -> None:
        """A shape that we do not write falls through to the next clause."""
        accept = "application/vnd.kubernetes.protobuf, application/json;as=Table;v=v9;g=meta.k8s.io, */*"
        self.assertEqual(choose(accept, [JSON, TABLE]), JSON)

    def test_quality_orders(self) -> None:
        """A higher quality takes precedence over order; equal qualities keep their order."""
        self.assertEqual(choose(f"{JSON};q=0.5,{TABLE};q=0.9", [JSON, TABLE]), TABLE)
        self.assertEqual(choose(f"{TABLE},{JSON}", [JSON, TABLE]), TABLE)

    def test_quality_zero_and_nonsense(self) -> None:
        """A quality of 0, or a malformed one, means never."""
        self.assertIsNone(choose("application/json;q=0, text/*;q=x", [JSON, "text/plain"]))

    def test_half_wildcard(self) -> None:
        """application/* takes JSON, text/* does not."""
        self.assertEqual(choose("application/*", [JSON]), JSON)
        self.assertIsNone(choose("text/*", [JSON]))

    def test_charset_does_not_matter(self) -> None:
        """Parameters that select no shape are ignored, as are quotes around a value."""
        self.assertEqual(
            choose('application/json; charset=utf-8; as="Table"; v=v1; g=meta.k8s.io', [TABLE]), TABLE
        )

    def test_parse(self) -> None:
        """Media types compare in lower case; q is not a parameter."""
        clause = parse_clause("Application/JSON ; Q=0.25 ; as=Table")
        self.assertEqual((clause.media, clause.parameters, clause.quality), (JSON, {"as": "Table"}, 0.25))

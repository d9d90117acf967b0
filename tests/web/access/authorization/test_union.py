"""Tests of `tower.web.access.authorization.union`."""

from __future__ import annotations

from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes, attributes_of
from tower.web.access.authorization.decision import Answer, Decision, Ruling
from tower.web.access.authorization.union import AlwaysAllow, AlwaysDeny, AuthorizerUnion, PrivilegedGroups

REQUEST = attributes_of(UserInfo("jane", ("dev",)), b"GET", b"/x", "alpha")
DECISIONS = st.builds(
    Decision,
    st.sampled_from(Ruling),
    st.sampled_from(["", "one", "two"]),
    st.sampled_from(["", "e", "f"]),
    st.booleans(),
)


@define
class Fixed:
    """An authorizer with a fixed decision, now or later."""

    decision: Decision
    waits: bool = False

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the decision."""
        return succeed(self.decision) if self.waits else self.decision


class AuthorizerUnionTests(SynchronousTestCase):
    """Orders of authorizers."""

    def decide(self, *authorizers: object, request: Attributes = REQUEST) -> Decision:
        """Return the decision of the union."""
        found = AuthorizerUnion(*authorizers).authorize(request)  # type: ignore[arg-type]
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    @given(st.lists(st.tuples(DECISIONS, st.booleans()), max_size=4))
    def test_model(self, each: list[tuple[Decision, bool]]) -> None:
        """The first that allows or denies decides; without one, reasons and errors are joined."""
        found = self.decide(*(Fixed(decision, waits) for decision, waits in each))
        asked = []
        for decision, _ in each:
            asked.append(decision)
            if decision.ruling is not Ruling.NO_OPINION:
                self.assertEqual(
                    (found.ruling, found.reason, found.error),
                    (decision.ruling, decision.reason, decision.error),
                )
                break
        else:
            self.assertIs(found.ruling, Ruling.NO_OPINION)
            self.assertEqual(found.reason, "\n".join(one.reason for one in asked if one.reason))
            self.assertTrue(all(one.error in found.error for one in asked))
        self.assertEqual(found.may_be_kept, all(one.may_be_kept for one in asked))

    def test_modes(self) -> None:
        """`AlwaysDeny` leaves the decision to later ones; the groups of administrators pass."""
        everything = "Everything is forbidden."
        self.assertTrue(self.decide(AlwaysDeny(), AlwaysAllow()).is_allowed)
        self.assertEqual(self.decide(AlwaysDeny()), Decision(Ruling.NO_OPINION, everything))
        admin = attributes_of(UserInfo("a", ("tower:admins",)), b"GET", b"/x", "alpha")
        self.assertTrue(self.decide(PrivilegedGroups(), AlwaysDeny(), request=admin).is_allowed)
        self.assertFalse(self.decide(PrivilegedGroups(), AlwaysDeny()).is_allowed)

    def test_errors(self) -> None:
        """Several errors are in brackets, each once."""
        one, two = (Fixed(Decision(Ruling.NO_OPINION, error=text)) for text in ("a", "b"))
        self.assertEqual(self.decide(one, one).error, "a")
        self.assertEqual(self.decide(one, two).error, "[a, b]")

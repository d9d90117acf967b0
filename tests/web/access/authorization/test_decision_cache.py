"""Tests of `tower.web.access.authorization.decision_cache`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.request_info import RequestInfo
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization import decision_cache
from tower.web.access.authorization.attributes import Attributes, attributes_of
from tower.web.access.authorization.decision import Answer, Decision, Ruling
from tower.web.access.authorization.decision_cache import DecisionCache


class Counting:
    """Numbers its decisions."""

    def __init__(self) -> None:
        self.count = 0
        self.may_be_kept = True
        self.waits = False

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the next decision."""
        self.count += 1
        found = Decision(Ruling.ALLOW, str(self.count), may_be_kept=self.may_be_kept)
        return succeed(found) if self.waits else found


class DecisionCacheTests(SynchronousTestCase):
    """Which decisions are kept."""

    def setUp(self) -> None:
        """Create the cache."""
        self.source = Counting()
        self.cache = DecisionCache(self.source)

    def decide(self, user: str = "jane", path: bytes = b"/x", cluster: str = "alpha") -> str:
        """Return the reason of a decision."""
        found = self.cache.authorize(attributes_of(UserInfo(user), b"GET", path, cluster))
        return (self.successResultOf(found) if isinstance(found, Deferred) else found).reason

    def test_key(self) -> None:
        """Another user, request or cluster has another decision, and so has a new generation."""
        self.assertEqual((self.decide(), self.decide(), self.decide(path=b"/x?a=1")), ("1", "1", "1"))
        self.assertEqual(
            (self.decide("joe"), self.decide(path=b"/y"), self.decide(cluster="b")), ("2", "3", "4")
        )
        self.cache.clear()
        self.assertEqual((self.decide(), self.cache.generation), ("5", 1))

    def test_not_kept(self) -> None:
        """Decisions that may change at any time, later ones, and those on long paths are not kept."""
        long = b"/" + b"x" * decision_cache.KEY_LIMIT
        self.assertEqual((self.decide(path=long), self.decide(path=long)), ("1", "2"))
        self.source.may_be_kept = False
        self.assertEqual((self.decide(), self.decide()), ("3", "4"))
        self.source.may_be_kept, self.source.waits = True, True
        self.assertEqual((self.decide(), self.decide()), ("5", "6"))

    def test_size(self) -> None:
        """No text that a client chooses makes the cache large: names of objects, users, groups or extras."""
        long = "x" * 64 * 1024
        selected = f"/api/v1/pods?fieldSelector=metadata.name={long}".encode()
        asked = [
            attributes_of(UserInfo("jane"), b"GET", selected, "alpha"),
            attributes_of(UserInfo("jane"), b"GET", b"/x", long),
            attributes_of(UserInfo("jane"), b"GET", b"/" + b"%F0%9F%9A%80" * 200, "alpha"),
            *(
                attributes_of(user, b"GET", b"/x", "alpha")
                for user in (
                    UserInfo(long),
                    UserInfo("joe", (long,)),
                    UserInfo("joe", uid=long),
                    UserInfo("joe", extra=((long, ()),)),
                    UserInfo("joe", extra=(("scopes", ("a",) * 8000 + ("b",) * 8000),)),
                )
            ),
        ]
        for field in RequestInfo._fields[:-1]:
            changed: dict[str, Any] = {field: long}
            info = RequestInfo("get", "/x")._replace(**changed)
            asked.append(Attributes(UserInfo("jane"), info, "alpha"))
        for number, attributes in enumerate(asked):
            self.cache.authorize(attributes)
            self.assertEqual(len(self.cache._users), 0, number)
        self.assertEqual(self.decide(), self.decide())

    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
    def test_bounds(self, asked: list[tuple[int, int]]) -> None:
        """Never more users and decisions than the limits, and a kept decision is of its request."""
        self.patch(decision_cache, "USERS", 3)
        self.patch(decision_cache, "DECISIONS", 3)
        self.patch(decision_cache, "TOTAL", 5)
        cache = DecisionCache(self.source)
        decisions: dict[str, tuple[int, int]] = {}
        for user, path in asked:
            found = cache.authorize(attributes_of(UserInfo(str(user)), b"GET", b"/%d" % path, "alpha"))
            assert isinstance(found, Decision)
            self.assertEqual(decisions.setdefault(found.reason, (user, path)), (user, path))
            kept = cache._users
            self.assertLessEqual(len(kept), 3)
            self.assertTrue(all(len(each) <= 3 for each in kept.values()))
            self.assertEqual(cache._size, sum(map(len, kept.values())))
            self.assertLessEqual(cache._size, 5)

"""Tests of `tower.web.access.authentication.union`."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Unauthorized
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.attempts import RESULTS, Attempts
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.union import AuthenticatorUnion

JANE, JOE = Identity("jane", key="a:1", method="a"), Identity("joe", key="b:1", method="b")
UNKNOWN = Unauthorized("unknown token", kind="unknown")
EXPIRED = Unauthorized("the token has expired", kind="expired")


@define
class Method:
    """A method with a fixed answer, now or later."""

    method: str
    answer: Identity | Unauthorized | None = None
    waits: bool = False
    asked: int = 0
    checked: list[Identity] = field(factory=list)

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the answer, or raise it."""
        self.asked += 1
        if self.waits:
            return fail(self.answer) if isinstance(self.answer, Unauthorized) else succeed(self.answer)
        if isinstance(self.answer, Unauthorized):
            raise self.answer
        return self.answer

    def check(self, identity: Identity) -> None:
        """Record the call."""
        self.checked.append(identity)


class UnionTests(SynchronousTestCase):
    """Every case with methods that answer at once, and with methods that need time."""

    def result(self, *methods: Method) -> Identity:
        """Return the user that the union finds."""
        found = AuthenticatorUnion(*methods).authenticate(Presented(None, b"token"))
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    def refusal(self, *methods: Method) -> Unauthorized:
        """Return the rejection of the union."""
        try:
            found = AuthenticatorUnion(*methods).authenticate(Presented(None, b"token"))
        except Unauthorized as e:
            return e
        assert isinstance(found, Deferred)
        error = self.failureResultOf(found, Unauthorized).value
        assert isinstance(error, Unauthorized)
        return error

    def test_first(self) -> None:
        """The first user that a method finds is the user, and later methods are not asked."""
        for waits in (False, True):
            first, last = Method("a", JANE, waits), Method("b", JOE, waits)
            self.assertIs(self.result(first, last), JANE)
            self.assertEqual(last.asked, 0)
            self.assertIs(self.result(Method("a", None, waits), last), JOE)

    def test_refused_by_one(self) -> None:
        """A method that rejects the credential does not keep the next one from accepting it."""
        for waits in (False, True):
            for other in (False, True):
                self.assertIs(self.result(Method("a", UNKNOWN, waits), Method("b", JOE, other)), JOE)

    def test_refused_by_all(self) -> None:
        """The text is that of a method that knows the credential, if there is one."""
        for waits in (False, True):
            methods = [Method(name, UNKNOWN, waits) for name in "ab"]
            self.assertIs(self.refusal(*methods), UNKNOWN)
            for found, reason in (
                (
                    self.refusal(*methods, Method("c", EXPIRED, waits)),
                    "[unknown token, the token has expired]",
                ),
                (self.refusal(Method("c", EXPIRED), *methods), "[the token has expired, unknown token]"),
            ):
                self.assertEqual((str(found), found.kind, found.reason), (str(EXPIRED), "expired", reason))

    def test_nothing(self) -> None:
        """Without a credential, the text has the command that makes one."""
        for waits in (False, True):
            error = self.refusal(Method("a", None, waits), Method("b", None, waits))
            self.assertEqual(error.kind, "no-credential")
            self.assertIn("tower kubeconfig", str(error))

    def test_anonymous(self) -> None:
        """A request is anonymous only without any credential, and if no method has rejected one."""
        for waits in (False, True):
            for methods, bearer, path in (
                ((Method("a", None, waits),), None, b"/a"),
                ((Method("a", None, waits),), b"token", None),
                ((Method("a", UNKNOWN, waits), Method("b", None, waits)), None, None),
                ((Method("a", None, waits),), None, None),
            ):
                union = AuthenticatorUnion(*methods, anonymous=AnonymousAuthenticator({b"/a"}))
                presented = Presented(None, bearer, path=path or b"/b")
                try:
                    found = union.authenticate(presented)
                except Unauthorized:
                    self.assertIsNone(path)
                    continue
                if isinstance(found, Deferred) and path is None:
                    self.failureResultOf(found, Unauthorized)
                    continue
                user = self.successResultOf(found) if isinstance(found, Deferred) else found
                self.assertEqual((user.user, path), ("system:anonymous", b"/a"))
                union.check(user)

    def test_attempts(self) -> None:
        """Results are counted as in kube-apiserver."""
        for waits in (False, True):
            for answer, result in ((JANE, "success"), (None, "failure"), (EXPIRED, "error")):
                clock = iter((1.0, 3.0))
                attempts = Attempts(lambda clock=clock: next(clock))  # type: ignore[misc]
                union = AuthenticatorUnion(Method("a", answer, waits), attempts=attempts)
                try:
                    found = union.authenticate(Presented(None, None))
                    if isinstance(found, Deferred):
                        found.addErrback(lambda failure: failure.trap(Unauthorized))
                except Unauthorized:
                    pass
                self.assertEqual(attempts.counts, {**dict.fromkeys(RESULTS, 0), result: 1})
                self.assertEqual(attempts.durations[result].sum, 2.0)

    def test_check(self) -> None:
        """A cached user is checked by the method that found it."""
        first, last = Method("a"), Method("b")
        AuthenticatorUnion(first, last).check(JOE)
        self.assertEqual((first.checked, last.checked), ([], [JOE]))

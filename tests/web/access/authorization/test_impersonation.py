"""Tests of `tower.web.access.authorization.impersonation`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeChannel
from tower.errors import Forbidden
from tower.http.requests import Fields
from tower.kube.canonical_head import identity_lines, write_acting_fields
from tower.kube.status import StatusError
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.impersonation import Impersonation, act, wanted_of

AUTHENTICATION = "authentication.k8s.io"


def fields_of(*lines: str) -> Fields:
    """Return header fields."""
    return Fields(b"".join(line.encode() + b"\r\n" for line in ("Host: x", *lines)) + b"\r\n")


class Rights:
    """Allows the impersonation of some names, and records what it was asked.

    :ivar later: the next answer comes through it; None: at once.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[tuple[str, str, str, str, str]] = []
        self.later: Deferred[Decision] | None = None

    def authorize(self, attributes: Attributes) -> Any:
        """See `Authorizer`."""
        info = attributes.request
        self.asked.append((info.group, info.resource, info.subresource, info.namespace, info.name))
        later, self.later = self.later, None
        if later is not None:
            return later
        return Decision(Ruling.ALLOW if info.name in self.names else Ruling.NO_OPINION)


class WantedTests(SynchronousTestCase):
    """The identity in header fields."""

    def rights(self, *lines: str) -> list[tuple[str, str, str, str, str]]:
        """Return the rights that a request needs."""
        wanted = wanted_of(fields_of(*lines))
        return [(i.group, i.resource, i.subresource, i.namespace, i.name) for i in wanted.rights]

    def test_user(self) -> None:
        """A user has groups, facts and a UID; keys are in lower case and decoded."""
        found = self.rights(
            "impersonate-USER: bob",
            "Impersonate-Group: dev",
            "Impersonate-Group: qa",
            "Impersonate-Uid: 7",
            "Impersonate-Extra-Acme.Com%2fProject: x",
        )
        expected = [
            ("", "users", "", "", "bob"),
            (AUTHENTICATION, "uids", "", "", "7"),
            ("", "groups", "", "", "dev"),
            ("", "groups", "", "", "qa"),
            (AUTHENTICATION, "userextras", "acme.com/project", "", "x"),
        ]
        self.assertEqual(found, expected)

    def test_escaped_keys(self) -> None:
        """The right is needed for the key that the cluster gets, also if its letters are escaped."""
        fields = ("Impersonate-User: bob", "Impersonate-Extra-%41dmin: x", "Impersonate-Extra-Admin: y")
        wanted = wanted_of(fields_of(*fields))
        self.assertEqual(wanted.user.extra, (("admin", ("x", "y")),))
        self.assertEqual([each.subresource for each in wanted.rights[1:]], ["admin", "admin"])
        self.assertIn(b"Impersonate-Extra-admin: x\r\n", identity_lines("bob", (), "", wanted.user.extra))

    def test_accounts(self) -> None:
        """Service accounts and nodes have the groups that Kubernetes gives them."""
        name = "system:serviceaccount:build:ci"
        wanted = wanted_of(fields_of(f"Impersonate-User: {name}"))
        self.assertEqual(
            self.rights(f"Impersonate-User: {name}"), [("", "serviceaccounts", "", "build", "ci")]
        )
        self.assertEqual(wanted.at_door.groups, ("system:serviceaccounts", "system:serviceaccounts:build"))
        self.assertEqual(wanted.user, UserInfo(name))
        node = wanted_of(fields_of("Impersonate-User: system:node:a"))
        self.assertEqual(node.at_door.groups, ("system:nodes",))

    def test_rejected(self) -> None:
        """Other spellings, two users, and values that cannot be names are rejected."""
        user = "Impersonate-User: bob"
        for lines in (
            ("Impersonate_User: bob",),
            (user, "Impersonate-Foo: x"),
            (user, "X-Remote-User: x"),
            (user, "X_Remote_Group: x"),
            (user, "Impersonate-Extra-: x"),
            (user, "Impersonate-Extra_scopes: x"),
            (user, "Impersonate-Extra-%00: x"),
            (user, user),
            (user, "Impersonate-Uid: 1", "Impersonate-Uid: 2"),
            ("Impersonate-User: b\u200bob",),
        ):
            with self.assertRaises(Forbidden, msg=str(lines)):
                wanted_of(fields_of(*lines))

    def test_no_user(self) -> None:
        """Without a user, the answer has kube-apiserver's text."""
        with self.assertRaises(StatusError) as caught:
            wanted_of(fields_of("Impersonate-Group: dev", "Impersonate-Extra-scopes: a"))
        self.assertEqual(caught.exception.code, 400)
        self.assertIn(
            'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, '
            'Extra:map[string][]string{"scopes":[]string{"a"}}} without impersonating a user name',
            caught.exception.message,
        )

    def test_empty_group(self) -> None:
        """An empty group is rejected, not dropped: with it, the request would claim another identity."""
        for user, text in ((("Impersonate-User: bob",), "Impersonate-Group '' is not"), ((), '[]string{""}')):
            for more in ((), ("Impersonate-Group: qa",)):
                with self.assertRaises(StatusError) as caught:
                    wanted_of(fields_of(*user, "Impersonate-Group: ", *more))
                self.assertEqual(caught.exception.code, 400)
                self.assertIn(text.removesuffix("}") if more else text, caught.exception.message)


class ImpersonationTests(SynchronousTestCase):
    """Requests that ask to act as others."""

    def setUp(self) -> None:
        """Allow jane to act as bob."""
        self.rights = Rights("bob", "dev")
        self.generation = 0
        self.own = Rights("tower:root")
        self.impersonation = Impersonation(self.own, self.rights, lambda: self.generation)
        self.jane = Identity("jane", ("ops",), method="test", key="jane")
        self.channel = FakeChannel()

    def request(self, *lines: str) -> Any:
        """Return a request of jane's."""

        class Asked:
            fields = fields_of(*lines)
            channel = self.channel
            identity = self.jane
            entry = None

        return Asked()

    def acts(self, *lines: str, cluster: str = "alpha") -> Identity:
        """Let a request act; return its identity."""
        request = self.request(*lines)
        self.assertIsNone(self.impersonation.check(request, cluster))
        act(request)
        identity: Identity = request.identity
        return identity

    def refused(self, *lines: str, cluster: str = "alpha") -> str:
        """Check that a request is refused; return the text."""
        with self.assertRaises((StatusError, Forbidden)) as caught:
            self.impersonation.check(self.request(*lines), cluster)
        return str(caught.exception)

    def test_acts(self) -> None:
        """The request has the other identity, and that of its sender."""
        found = self.acts("Impersonate-User: bob", "Impersonate-Group: dev")
        self.assertEqual((found.user, found.groups, found.is_acting), ("bob", ("dev",), True))
        self.assertEqual(found.in_member, UserInfo("bob", ("dev",)))
        self.assertEqual((found.sender, found.at_door, found.session), (self.jane, self.jane, "jane"))

    def test_refused(self) -> None:
        """Each part needs the right; the text is kube-apiserver's, with the cure."""
        text = self.refused("Impersonate-User: bob", "Impersonate-Group: qa")
        self.assertIn(
            'groups "qa" is forbidden: User "jane" cannot impersonate resource "groups" in API group "" at '
            "the cluster scope; an administrator of Tower can grant this right",
            text,
        )
        self.assertEqual([name for *_, name in self.rights.asked], ["bob", "qa"])
        self.rights.names = ("tower:root", "bob")
        self.assertIn("no cluster accepts", self.refused("Impersonate-User: tower:root"))
        self.acts("Impersonate-User: tower:root", cluster="")
        self.assertIn('users "bob" is forbidden', self.refused("Impersonate-User: bob", cluster=""))
        stream = ("Upgrade: tower-stream", "Connection: Upgrade")
        self.assertIn("raw stream", self.refused("Impersonate-User: bob", *stream))

    def test_later(self) -> None:
        """A decision that takes time rejects later, and a failure is not a permission."""
        for decision, error in (
            (Decision(Ruling.ALLOW), None),
            (Decision(Ruling.NO_OPINION), 403),
            (Decision(Ruling.NO_OPINION, error="down"), 500),
        ):
            later: Deferred[Decision] = Deferred()
            self.rights.later = later
            waiting = self.impersonation.check(self.request("Impersonate-User: bob"), "alpha")
            assert waiting is not None
            later.callback(decision)
            if error is None:
                self.assertIsNone(self.successResultOf(waiting))
            else:
                self.assertEqual(self.failureResultOf(waiting, StatusError).value.code, error)

    def test_end_of_right(self) -> None:
        """The end of the right ends the connection, unless it has another user now."""
        for is_current in (True, False):
            self.channel = FakeChannel()
            found = self.acts("Impersonate-User: bob")
            self.channel.session.identity = found if is_current else self.jane
            self.rights.names, self.generation = (), self.generation + 1
            self.impersonation.sweep()
            self.assertEqual([code for _, code in self.channel.ends], [403] if is_current else [])
            for reason, _ in self.channel.ends:
                self.assertTrue(reason.startswith('users "bob" is forbidden'), reason)
            self.rights.names = ("bob",)

    def test_ask_again(self) -> None:
        """A right that a webhook has withdrawn ends the connection, and its failure does not."""
        for is_current, decision, ends in (
            (True, Decision(Ruling.NO_OPINION), True),
            (True, Decision(Ruling.NO_OPINION, error="down"), False),
            (True, Decision(Ruling.ALLOW), False),
            (False, Decision(Ruling.NO_OPINION), False),
        ):
            self.channel = FakeChannel()
            found = self.acts("Impersonate-User: bob")
            self.channel.session.identity = found if is_current else self.jane
            self.rights.later = later = Deferred[Decision]()
            asking = Deferred.fromCoroutine(self.impersonation.ask_again())
            later.callback(decision)
            self.successResultOf(asking)
            self.rights.later = None
            self.assertEqual(bool(self.channel.ends), ends, decision)

    def test_lines(self) -> None:
        """The member gets the identity in canonical form, without the claims of the request."""
        fields = fields_of("Impersonate-User: bob", "Accept: */*", "impersonate-extra-a%2fb: x")
        user = wanted_of(fields).user
        lines = identity_lines(user.name, user.groups, "7", user.extra)
        head = write_acting_fields(fields, lines, b"")
        self.assertEqual(
            head,
            b"Impersonate-User: bob\r\nImpersonate-Uid: 7\r\nImpersonate-Extra-a%2Fb: x\r\n"
            b"Host: x\r\nAccept: */*\r\n\r\n",
        )

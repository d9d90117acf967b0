"""Attacks on kube-apiserver and on other proxies, each by its name, at the front door."""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.bastion import Bastion, Reached, bearer, claims_of
from tests.fakes.gateway import FakeUser, get, ok
from tests.fakes.pipes import FakePipe
from tests.fakes.sockets import SocketReactor
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import status_of
from tower.errors import StreamRefused
from tower.net.connecting import ConnectFailed, connect
from tower.net.tls.connection import TLSFailed

ALPHA = b"/clusters/alpha"
EXEC = ALPHA + b"/api/v1/namespaces/team/pods/web/exec?command=id"
PODS = ALPHA + b"/api/v1/namespaces/team/pods"
UPGRADE = (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
JANE = bearer(b"file-token")
TESS = claims_of("tess", "dev")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 [0-9]{3} ")
SECOND = b"GET /api/v1/secrets HTTP/1.1\r\nHost: tower\r\nImpersonate-User: admin\r\n\r\n"


class KnownAttackTestCase(SynchronousTestCase):
    """The door, and a user of alpha."""

    def setUp(self) -> None:
        """Connect the user."""
        self.bastion = Bastion()
        self.addCleanup(self.bastion.stop)
        self.user = self.bastion.connect()

    def reach(self, target: bytes = PODS, *fields: bytes, method: bytes = b"GET") -> FakePipe:
        """Return the member's end of a request, which it has not answered."""
        self.user.deliver(get(target, JANE, *fields, method=method))
        (reached,) = self.reached()
        self.assertEqual((reached.cluster, reached.claims), ("alpha", TESS))
        return reached.pipe

    def reached(self) -> list[Reached]:
        """Return the requests that members have received since the last call."""
        self.bastion.clock.advance(0)
        return self.bastion.members.take()

    def channels(self) -> int:
        """Return the number of channels to members so far."""
        return sum(len(each.pipes) for each in self.bastion.members.by_name.values())


class BackendTests(KnownAttackTestCase):
    """A member, node or user that abuses what the proxy may do."""

    def test_cve_2018_1002105(self) -> None:
        """CVE-2018-1002105: after a member has rejected an upgrade, nothing more reaches it as the proxy."""
        for answer in (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 404 No\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 426 No\r\nConnection: keep-alive, Upgrade\r\nContent-Length: 0\r\n\r\n",
        ):
            self.user = self.bastion.connect()
            pipe = self.reach(EXEC, *UPGRADE, method=b"POST")
            self.user.deliver(SECOND)
            pipe.deliver(answer)
            self.user.deliver(SECOND)
            self.assertNotIn(b"HTTP/1.1 101", self.user.taken())
            self.assertEqual(pipe.taken(), b"", answer)
            self.assertTrue(pipe.aborted, answer)
            self.assertTrue(self.user.closing or self.user.lost, answer)
        before = self.channels()
        self.user = self.bastion.connect()
        self.reach()
        self.assertEqual(self.channels(), before + 1)  # no such channel is used again

    def test_cve_2018_1002105_without_an_upgrade(self) -> None:
        """CVE-2018-1002105: a member switches no protocol that the user did not request."""
        pipe = self.reach()
        pipe.deliver(SWITCHED + b"raw")
        self.assertEqual(status_of(self.user.taken()), 502)
        self.user.deliver(SECOND)
        self.assertEqual(pipe.taken(), b"")
        self.assertTrue(pipe.aborted)

    def test_cve_2020_8559(self) -> None:
        """CVE-2020-8559: a node that redirects an upgrade leads neither Tower nor the user elsewhere."""
        for location in (
            b"https://10.0.0.2:10250/exec/team/other/web",
            b"https://tower:8443/clusters/beta/api/v1/namespaces/team/pods/web/exec",
            b"/../beta/api/v1/namespaces/team/pods/web/exec",
        ):
            for code in (b"301", b"302", b"303", b"307", b"308"):
                self.user = self.bastion.connect()
                pipe, before = self.reach(EXEC, *UPGRADE, method=b"POST"), self.channels()
                pipe.deliver(
                    b"HTTP/1.1 %b Go\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (code, location)
                )
                answer = self.user.taken()
                for place in (b"10.0.0.2", b"Location: /clusters/beta", b"../"):
                    self.assertNotIn(place, answer)
                self.user.deliver(SECOND)
                self.assertEqual((pipe.taken(), self.reached(), self.channels()), (b"", [], before))

    def test_cve_2022_3172(self) -> None:
        """CVE-2022-3172: a member does not redirect a user's program, with its credential, out of alpha."""
        for location in (
            b"https://evil.example/collect",
            b"http://evil.example/collect",
            b"//evil.example/collect",
            b"https://tower:8443@evil.example/",
            b"https://tower:8443.evil.example/",
            b"https://tower/clusters/beta/api",
            b"https://tower.:8443/clusters/beta/api",
            b"https://192.0.2.1:8443/clusters/beta/api",
            b"/../beta/api/v1/secrets",
            b"/%2e%2e/beta/api/v1/secrets",
            b"/..;/beta/api/v1/secrets",
            b"../../../../../beta/api/v1/secrets",
            b"data:text/plain,x",
        ):
            for code in (b"300", b"301", b"302", b"303", b"307", b"308"):
                self.user = self.bastion.connect()
                pipe = self.reach(method=b"POST")
                pipe.deliver(
                    b"HTTP/1.1 %b Go\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (code, location)
                )
                answer = self.user.taken()
                self.assertEqual(status_of(answer), 502, location)
                self.assertIn(b"attempted to redirect this request, which is not permitted", answer)
                self.assertNotIn(b"\r\nLocation:", answer)
        for location, path in (
            (b"/login", ALPHA + b"/login"),
            (b"https://tower:8443/clusters/beta/api", ALPHA + b"/clusters/beta/api"),
            (b"/clusters/beta/api", ALPHA + b"/clusters/beta/api"),
            (b"https://10.0.0.1:6443/api", ALPHA + b"/api"),
        ):
            self.user = self.bastion.connect()
            pipe = self.reach()
            pipe.deliver(b"HTTP/1.1 302 Go\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location)
            self.assertIn(b"\r\nLocation: %b\r\n" % path, self.user.taken())


class _ChangingResolver:
    """Answers each question with another address: first a harmless one, then one of the proxy's machine."""

    def __init__(self) -> None:
        self.asked = 0

    def resolveHostName(self, receiver: Any, name: str, port: int) -> None:
        """See IHostnameResolver."""
        self.asked += 1
        receiver.resolutionBegan(None)
        receiver.addressResolved(IPv4Address("TCP", "192.0.2.9" if self.asked == 1 else "127.0.0.1", port))
        receiver.resolutionComplete()


class AddressTests(HoleTestCase):
    """CVE-2020-8562: an address is checked, and then another one is dialed."""

    def test_cve_2020_8562(self) -> None:
        """CVE-2020-8562: a request cannot name an address: only those of the agent's owner are dialed."""
        agent = self.agent()
        (tunnel,) = self.tower.tunnels.live("alpha")
        credential = self.tower.credential("alpha")
        for target in (
            b"/targets/169.254.169.254:80/",
            b"/targets/127.0.0.1/",
            b"/targets/localhost:22/",
            b"/targets/[::1]:22/",
            b"/targets/kubernetes/",
        ):
            user = self.tower.user()
            answer = self.tower.ask(user, get(ALPHA + target, credential))
            self.assertIn(status_of(answer), (400, 403, 404, 503), target)
            if target != b"/targets/kubernetes/":
                opening = tunnel.open(target.decode().removeprefix("/targets/").strip("/"))
                self.tower.pump()
                self.failureResultOf(opening, StreamRefused)
        self.assertEqual(agent.dialed, [])

    def test_cve_2020_8562_names(self) -> None:
        """CVE-2020-8562: a name is resolved once for a connection, so that a second answer has no effect."""
        reactor: Any = SocketReactor()
        reactor.nameResolver = resolver = _ChangingResolver()
        connecting = connect(reactor, "member.example", 6443, timeout=5)
        self.assertEqual(resolver.asked, 1)
        connecting.addErrback(lambda failure: failure.trap(ConnectFailed, TLSFailed) and None)
        reactor.advance(6)
        self.assertEqual(resolver.asked, 1)


#: Bodies of other lengths than they seem to have, by the name of the shape.
_FRAMINGS: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "CL.TE": ((b"Content-Length: 6", b"Transfer-Encoding: chunked"), b"0\r\n\r\nG"),
    "TE.CL": ((b"Transfer-Encoding: chunked", b"Content-Length: 4"), b"5c\r\nGPOST /\r\n0\r\n\r\n"),
    "TE.TE": ((b"Transfer-Encoding: chunked", b"Transfer-encoding: cow"), b"5c\r\n"),
    "TE.TE by a list": ((b"Transfer-Encoding: chunked, identity",), b"0\r\n\r\n"),
    "TE.TE by a tab": ((b"Transfer-Encoding:\x0bchunked",), b"0\r\n\r\n"),
    "TE.TE by a blank": ((b"Transfer-Encoding : chunked",), b"0\r\n\r\n"),
    "TE.TE by a quotation": ((b'Transfer-Encoding: "chunked"',), b"0\r\n\r\n"),
    "TE.0": ((b"Transfer-Encoding: identity",), b""),
    "CL.CL": ((b"Content-Length: 0", b"Content-Length: 5"), b"hello"),
    "CL.CL in one": ((b"Content-Length: 0, 5",), b"hello"),
    "CL with a sign": ((b"Content-Length: +5",), b"hello"),
    "CL in hexadecimal": ((b"Content-Length: 0x5",), b"hello"),
    "CL with an underscore": ((b"Content-Length: 1_0",), b"hello"),
    "Connection names the length": ((b"Connection: Content-Length", b"Content-Length: 5"), b"hello"),
    "Connection names the encoding": (
        (b"Connection: Transfer-Encoding", b"Transfer-Encoding: chunked"),
        b"0\r\n\r\n",
    ),
}

#: Chunks that servers read differently.
_CHUNKS: dict[str, bytes] = {
    "line end in an extension": b"5;a=\nb\r\nhello\r\n0\r\n\r\n",
    "bare LF behind the size": b"5\nhello\r\n0\r\n\r\n",
    "bare LF behind the data": b"5\r\nhello\n0\r\n\r\n",
    "no end of the data": b"5\r\nhello0\r\n\r\n",
    "signed size": b"+5\r\nhello\r\n0\r\n\r\n",
    "size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size with an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "blank before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "size of 65 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "bare CR": b"5\r\rhello\r\n0\r\n\r\n",
    "trailer with a claim": b"5\r\nhello\r\n0\r\nImpersonate-User: admin\r\n\r\n",
    "trailer with a length": b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
}

#: Lines of a head that some servers accept, and read differently.
_LINES: dict[str, bytes] = {
    "obs-fold": b"A: b\r\n Impersonate-User: admin",
    "obs-fold of the length": b"Content-Length:\r\n 5",
    "bare LF": b"A: b\nImpersonate-User: admin",
    "bare CR": b"A: b\rImpersonate-User: admin",
    "NUL in a name": b"Impersonate-User\x00: admin",
    "NUL in a value": b"A: b\x00\r\nC: d",
    "blank before the colon": b"Impersonate-User : admin",
    "tab before the colon": b"Impersonate-User\t: admin",
    "blank in a name": b"Impersonate User: admin",
    "blank before a name": b" Impersonate-User: admin",
    "no colon": b"Impersonate-User",
    "no name": b": admin",
    "name beyond ASCII": b"Impersonate-User\xa0: admin",
    "two Hosts": b"Host: beta",
}

#: Claims of another identity, in spellings that servers and languages read as the same.
_CLAIMS = (
    b"Impersonate-User: admin",
    b"impersonate-user: admin",
    b"Impersonate_User: admin",
    b"impersonate_user: admin",
    b"IMPERSONATE-GROUP: system:masters",
    b"Impersonate-Group: system:masters",
    b"Impersonate-Uid: 0",
    b"Impersonate-Extra-Scopes: all",
    b"Impersonate_Extra_Scopes: all",
    b"X-Remote-User: admin",
    b"X_Remote_User: admin",
    b"X-Remote_User: admin",
    b"x-remote-group: system:masters",
    b"X-Remote-Extra-Scopes: all",
    b"X-Webauth-User: admin",
)

#: Request lines with a target that two servers read differently.
_TARGETS: dict[str, bytes] = {
    "absolute form of another host": b"GET http://beta/clusters/beta/api HTTP/1.1",
    "absolute form": b"GET https://tower:8443/clusters/alpha/api HTTP/1.1",
    "authority form": b"CONNECT 169.254.169.254:80 HTTP/1.1",
    "two slashes": b"GET //clusters/alpha/api HTTP/1.1",
    "dots": b"GET /clusters/alpha/../beta/api HTTP/1.1",
    "encoded dots": b"GET /clusters/alpha/%2e%2e/beta/api HTTP/1.1",
    "dots encoded twice": b"GET /clusters/alpha/%252e%252e/beta/api HTTP/1.1",
    "dots behind a backslash": b"GET /clusters/alpha\\..\\beta/api HTTP/1.1",
    "dots with parameters": b"GET /clusters/alpha/..;x/beta/api HTTP/1.1",
    "encoded slash": b"GET /clusters/alpha%2f..%2fbeta/api HTTP/1.1",
    "NUL": b"GET /clusters/alpha/api\x00 HTTP/1.1",
    "blank": b"GET /clusters/alpha/api /clusters/beta HTTP/1.1",
    "tab": b"GET\t/clusters/alpha/api\tHTTP/1.1",
    "HTTP/0.9": b"GET /clusters/alpha/api",
    "HTTP/2": b"GET /clusters/alpha/api HTTP/2.0",
    "HTTP/1.2": b"GET /clusters/alpha/api HTTP/1.2",
    "preface of HTTP/2": b"PRI * HTTP/2.0",
}


class SmugglingTests(KnownAttackTestCase):
    """Requests inside of requests: none of them reaches a member, and the connection ends."""

    def assert_refused(self, name: str, wire: bytes, codes: tuple[int, ...] = (400, 501)) -> None:
        """Send *wire* and another request behind it: the first is refused, and the second is not read."""
        self.user = user = self.bastion.connect()
        user.deliver(wire + get(PODS + b"/smuggled", JANE))
        user.deliver(get(PODS + b"/smuggled", JANE))
        answer = user.taken()
        self.assertEqual(self.reached(), [], name)
        self.assertIn(status_of(answer), codes, name)
        self.assertEqual(len(_STATUS_LINE.findall(answer)), 1, name)
        self.assertTrue(user.closing or user.lost, name)

    def assert_framings_refused(self, *kinds: str) -> None:
        """Send the bodies of these kinds."""
        names = [name for name in _FRAMINGS if name.startswith(kinds)]
        self.assertTrue(names)
        for name in names:
            lines, body = _FRAMINGS[name]
            self.assert_refused(name, get(PODS, JANE, *lines, method=b"POST", body=body))

    def assert_lines_refused(self, *kinds: str) -> None:
        """Send the lines of these kinds."""
        names = [name for name in _LINES if name.startswith(kinds)]
        self.assertTrue(names)
        for name in names:
            self.assert_refused(name, get(PODS, JANE, _LINES[name]))

    def test_smuggling_cl_te(self) -> None:
        """A length, and then chunks."""
        self.assert_framings_refused("CL.TE")

    def test_smuggling_te_cl(self) -> None:
        """Chunks, and then a length."""
        self.assert_framings_refused("TE.CL")

    def test_smuggling_te_te(self) -> None:
        """Several encodings, and those that only some servers read."""
        self.assert_framings_refused("TE.TE", "TE.0")

    def test_smuggling_duplicate_content_length(self) -> None:
        """Two lengths, and lengths that are not numbers."""
        self.assert_framings_refused("CL.CL", "CL ")

    def test_smuggling_connection_names_framing(self) -> None:
        """Connection has a proxy remove the framing."""
        self.assert_framings_refused("Connection ")

    def test_smuggling_obs_fold(self) -> None:
        """Lines that continue the line before."""
        self.assert_lines_refused("obs-fold")

    def test_smuggling_bare_lf(self) -> None:
        """LF or CR alone as the end of a line."""
        self.assert_lines_refused("bare")

    def test_smuggling_nul(self) -> None:
        """NUL in names and values."""
        self.assert_lines_refused("NUL")

    def test_smuggling_whitespace(self) -> None:
        """Blanks in names, and names that are missing or beyond ASCII."""
        self.assert_lines_refused("blank", "tab", "no ", "name")

    def test_smuggling_chunk_extensions(self) -> None:
        """Chunks whose sizes, extensions or ends are ambiguous; nothing behind them is a request."""
        for name, body in _CHUNKS.items():
            user = self.user = self.bastion.connect()
            wire = get(PODS, JANE, b"Transfer-Encoding: chunked", method=b"POST", body=body)
            user.deliver(wire + get(PODS + b"/smuggled", JANE))
            sent = b"".join(each.taken() for each in self.bastion.members.by_name["alpha"].pipes)
            self.assertNotIn(b"smuggled", sent, name)
            self.assertNotIn(b"admin", sent, name)
            self.assertEqual(status_of(user.taken()), 400, name)
            self.assertTrue(user.closing or user.lost, name)

    def test_smuggling_underscores(self) -> None:
        """Claims of another identity in any spelling; the connection itself may go on."""
        for claim in _CLAIMS:
            self.user = self.bastion.connect()
            self.user.deliver(get(PODS, JANE, claim))
            self.assertEqual((status_of(self.user.taken()), self.reached()), (403, []), claim)

    def test_smuggling_connection_names(self) -> None:
        """Fields that Connection names are removed by proxies: that removes no claim, and no framing."""
        proxy = self.bastion.certificate("proxy", by=self.bastion.front)
        for name in (b"X-Remote-User", b"x-remote-group", b"Impersonate-User", b"Authorization", b"Host"):
            for user in (self.bastion.connect(), self.bastion.connect(proxy)):
                fields = (b"X-Remote-User: fay", b"X-Remote-Group: dev")
                lines = fields if user.certificate else (JANE, b"Impersonate-User: fay")
                user.deliver(get(PODS, *lines, b"Connection: keep-alive, " + name))
                self.assertEqual((status_of(user.taken()), self.reached()), (400, []), name)
        user = self.bastion.connect(proxy)
        named = (b"X-Webauth-User: fay", b"X-Remote-Group: dev", b"Connection: X-Webauth-User")
        user.deliver(get(PODS, *named))
        (reached,) = self.reached()
        self.assertEqual(reached.claims, claims_of("fay", "dev"))

    def test_smuggling_absolute_form(self) -> None:
        """Targets with a host, with dots in any encoding, and other versions of HTTP."""
        for name, line in _TARGETS.items():
            wire = line + b"\r\nHost: tower:8443\r\n" + JANE + b"\r\n\r\n"
            self.assert_refused(name, wire, (400, 404, 405, 501, 505))

    def test_smuggling_host_conflict(self) -> None:
        """A second Host, and an absolute target whose host differs from it."""
        self.assert_lines_refused("two Hosts")
        self.assert_refused("both", get(b"https://tower:8443" + PODS, JANE))
        self.assert_refused("other", get(b"https://beta" + PODS, JANE))

    def test_smuggling_h2c(self) -> None:
        """An upgrade to HTTP/2 is ignored: the request is a usual one, and its settings stay here."""
        settings = (b"HTTP2-Settings: AAMAAABkAAQAAP__", b"Upgrade: h2c")
        for connection in (b"Connection: Upgrade, HTTP2-Settings", b"Connection: Upgrade"):
            self.user = self.bastion.connect()
            self.user.deliver(get(PODS, JANE, *settings, connection))
            (reached,) = self.reached()
            head = reached.pipe.taken()
            self.assertNotIn(b"h2c", head)
            reached.pipe.deliver(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")
            self.assertEqual(status_of(self.user.taken()), 502)
            self.assertTrue(reached.pipe.aborted)

    def test_smuggling_answers(self) -> None:
        """An answer with two ends, or with another one behind it, is not passed to the next user."""
        for answer in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n A: b\r\n\r\n{}",
            b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\n{}",
            ok() + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        ):
            self.user = self.bastion.connect()
            pipe = self.reach()
            pipe.deliver(answer)
            self.assertNotIn(b"forged", self.user.taken())
            self.assertTrue(pipe.aborted, answer)
            other: FakeUser = self.bastion.connect()
            other.deliver(get(PODS, JANE))
            (reached,) = self.reached()
            self.assertIsNot(reached.pipe, pipe)

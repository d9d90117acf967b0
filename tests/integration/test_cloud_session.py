"""`tower.cloud.session` over real connections: trusted servers, and open connections."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.ssl import PrivateCertificate
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from tests.fakes.certificates import DAY, authority
from tests.integration.connect_proxy import NAME, Server, connect_proxy
from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer
from tower.cloud.http.exchange import BODY_LIMIT
from tower.cloud.session import CloudSession
from tower.net.lingering_close import Lingering
from tower.trust.pki import Authority

reactor: Any = _reactor

PATIENCE = 60.0  # s for what should happen at once


class Cloud(Resource):
    """Answers by path.

    :ivar asked: the paths.
    :ivar lost: fires when the client of ``/silent`` or ``/slow`` has closed the connection.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.lost: Deferred[None] = Deferred()

    def render(self, request: Any) -> Any:
        """Answer."""
        path = request.path.decode()
        self.asked.append(path)
        if path in ("/silent", "/slow"):
            request.notifyFinish().addErrback(lambda _: self.lost.callback(None))
            if path == "/slow":
                request.setHeader("content-length", "5")
                request.write(b"1")
            return NOT_DONE_YET
        if path == "/redirect":
            request.setResponseCode(302)
            request.setHeader("location", "/elsewhere")
        if path == "/endless":
            self._write_on(request)
            return NOT_DONE_YET
        return request.content.read() or b"fine"

    def _write_on(self, request: Any) -> None:
        done: list[object] = []
        request.notifyFinish().addBoth(done.append)

        def write() -> None:
            if not done:
                request.write(b"x" * 2**18)
                reactor.callLater(0, write)

        write()


def say_nothing(connection: socket.socket) -> None:
    """Be an HTTP proxy that does not answer."""
    while connection.recv(4096):
        pass


class Watch:
    """The reactor, whose time only the test advances."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.seconds = self.clock.seconds
        self.callLater = self.clock.callLater

    def __getattr__(self, name: str) -> Any:
        return getattr(reactor, name)


class SessionTests(TestCase):
    """A server on the loopback, and a session with the system's clock."""

    timeout = 300

    def setUp(self) -> None:
        """Make a CA and a server with its certificate."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-cloud-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.wait_for_proxies()))
        self.cloud = Cloud()
        self.watch = Watch()

    async def wait_for_proxies(self) -> None:
        """Wait until the HTTP proxies have closed their ends: a thread of theirs may be late."""
        while any(isinstance(reader, Lingering) for reader in reactor.getReaders()):
            await deferLater(reactor, 0.01)

    def serve(self, of: Authority | None = None, *names: str, host: str = "127.0.0.1") -> str:
        """Start a server; return its URL.

        :param of: signs for its names; None: no TLS.
        """
        site = Site(self.cloud)
        if of is None:
            port = reactor.listenTCP(0, site, interface=host)
        else:
            issued = of.server_certificate(names, DAY, time.time())
            pair = PrivateCertificate.loadPEM(issued.certificate_pem + issued.key_pem)
            port = reactor.listenSSL(0, site, pair.options(), interface=host)
        self.addCleanup(port.stopListening)
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if of is None else 'https'}://{shown}:{port.getHost().port}"

    def session(self, trusted: Authority | None = None, **options: Any) -> CloudSession:
        """Return a session."""
        if trusted is not None:
            options["ca_file"] = str(self.folder / "ca.pem")
            Path(options["ca_file"]).write_bytes(b"# authorities\n" + trusted.pem)
        return CloudSession(options.pop("reactor", reactor), attempts=1, **options)

    async def late(self, session: CloudSession, url: str, asked: Callable[[], bool]) -> str:
        """Return what a request fails with whose time is over once *asked*; see `Watch`."""
        failing = Deferred.fromCoroutine(self.error(session, url))
        while not asked():
            await deferLater(reactor, 0.01)
        self.watch.clock.advance(0.5)
        return await failing

    async def error(self, session: CloudSession, url: str, kind: type[Exception] = CloudUnreachable) -> str:
        """Return what a request fails with."""
        with self.assertRaises(kind) as caught:
            await session.request("GET", url)
        return str(caught.exception)

    async def test_trusted(self) -> None:
        """A server with a certificate of the file's CA is trusted, by name or address."""
        own = authority(now=time.time())
        url = self.serve(own, "localhost", "127.0.0.1")
        session = self.session(own)
        for each in (url, url.replace("127.0.0.1", "localhost")):
            answer: Answer = await session.request("POST", f"{each}/x", body=b"abc")
            self.assertEqual((answer.code, answer.body), (200, b"abc"))

    async def test_stranger(self) -> None:
        """A server with a certificate of another CA is not asked."""
        url = self.serve(authority("other", now=time.time()), "127.0.0.1")
        for session in (self.session(authority(now=time.time())), self.session()):
            self.assertEqual(await self.error(session, url), f"GET {url}: TLS: certificate verify failed")
        self.assertEqual(self.cloud.asked, [])

    async def test_other_name(self) -> None:
        """A server with another name is not asked."""
        own = authority(now=time.time())
        url = self.serve(own, "tower.example")
        said = await self.error(self.session(own), url)
        self.assertEqual(said, f"GET {url}: its certificate is for other names")
        self.assertEqual(self.cloud.asked, [])

    async def test_http_proxy(self) -> None:
        """By HTTPS a cloud is reached through the environment's HTTP proxy, and verified all the same."""
        between = Server(connect_proxy)
        self.addCleanup(between.close)
        environ = {"https_proxy": f"http://127.0.0.1:{between.port}"}
        own = authority(now=time.time())
        url = self.serve(own, NAME).replace("127.0.0.1", NAME)
        session = self.session(own, environ=environ)
        body = bytes(range(256)) * 4096
        answer: Answer = await session.request("POST", f"{url}/x", body=body)
        self.assertEqual((answer.code, answer.body, between.served), (200, body, 1))
        stranger = self.session(authority("other", now=time.time()), environ=environ)
        self.assertEqual(await self.error(stranger, url), f"GET {url}: TLS: certificate verify failed")
        said = await self.error(session, "https://elsewhere.test/")
        proxy = f"127.0.0.1:{between.port} (https_proxy)"
        self.assertIn(f"the HTTP proxy {proxy} answered CONNECT with 403 Forbidden", said)
        self.assertEqual((between.served, self.cloud.asked), (3, ["/x"]))

    async def test_http_proxy_cancelled(self) -> None:
        """A cancelled request is closed at the proxy too, and so at the cloud."""
        between = Server(connect_proxy)
        self.addCleanup(between.close)
        own = authority(now=time.time())
        url = self.serve(own, NAME).replace("127.0.0.1", NAME)
        environ = {"HTTPS_PROXY": f"127.0.0.1:{between.port}"}
        session = self.session(own, environ=environ, timeout=0.5, reactor=self.watch)
        said = await self.late(session, f"{url}/silent", lambda: "/silent" in self.cloud.asked)
        self.assertIn("no answer within 0.5 s", said)
        await self.cloud.lost.addTimeout(PATIENCE, reactor)
        mute = Server(say_nothing)
        self.addCleanup(mute.close)
        session = self.session(own, environ={"HTTPS_PROXY": f"127.0.0.1:{mute.port}"}, timeout=0.5)
        self.assertIn("no answer within 0.5 s", await self.error(session, url))

    async def test_plain(self) -> None:
        """Plain HTTP, as of metadata services, never uses the HTTP proxy."""
        environ = dict.fromkeys(
            ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:1"
        )
        answer = await self.session(environ=environ).request("GET", self.serve())
        self.assertEqual(answer.body, b"fine")

    async def test_ipv6(self) -> None:
        """A server may have an IPv6 address."""
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("no IPv6")
        self.assertEqual((await self.session().request("GET", self.serve(host="::1"))).body, b"fine")

    async def test_redirect(self) -> None:
        """A redirect is not followed."""
        url = self.serve()
        await self.error(self.session(), f"{url}/redirect", CloudAnswerError)
        self.assertEqual(self.cloud.asked, ["/redirect"])

    async def test_refused(self) -> None:
        """Without a server there is an error at once."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.assertIn("Connection was refused", await self.error(self.session(), f"http://127.0.0.1:{port}/"))

    async def test_silent(self) -> None:
        """A missing or incomplete response times out, and the connection is closed."""
        url = self.serve()
        for path in ("/silent", "/slow"):
            self.cloud.lost = Deferred()
            session = self.session(timeout=0.5, reactor=self.watch)
            said = await self.late(session, url + path, lambda: path in self.cloud.asked)  # noqa: B023
            self.assertIn("no answer within 0.5 s", said)
            await self.cloud.lost.addTimeout(PATIENCE, reactor)

    async def test_never_speaks_tls(self) -> None:
        """A server that never completes the TLS handshake times out too."""
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            said = await self.error(self.session(timeout=0.5), f"https://127.0.0.1:{port}/")
        self.assertIn("no answer within 0.5 s", said)

    async def test_endless(self) -> None:
        """An answer without an end is cut at the limit."""
        url = self.serve()
        self.assertIn(
            f"more than {BODY_LIMIT} B", await self.error(self.session(), f"{url}/endless", CloudError)
        )

    async def test_stop(self) -> None:
        """Stopping closes what is open."""
        url = self.serve()
        session = self.session()
        asking = Deferred.fromCoroutine(session.request("GET", f"{url}/silent"))
        while not self.cloud.asked:
            await deferLater(reactor, 0.01)
        session.stop()
        with self.assertRaises(CancelledError):
            await asking
        await self.cloud.lost.addTimeout(PATIENCE, reactor)

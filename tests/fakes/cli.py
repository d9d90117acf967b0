"""The `tower` command against Tower's own API in memory: no sockets, no processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

from twisted.internet.defer import Deferred, succeed

from tests.fakes.api import ApiTestCase
from tower.cli import main
from tower.cli.client import TowerClient
from tower.kube.kubeconfig import KubeAccess, kubeconfig
from tower.kube.status import refusal_of, status_object
from tower.web.api.dispatch import Call
from tower.web.outcome import Response


class FakeResponse:
    """A response of `http.client`."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    def read(self, limit: int) -> bytes:
        """Return the body."""
        return self._body[:limit]


class FakeConnection:
    """A connection of `http.client` whose answers *answer* makes.

    :ivar requests: method, target and header of each request.
    """

    def __init__(self, answer: Callable[[str, str, bytes, dict[str, str]], FakeResponse]) -> None:
        self._answer = answer
        self._response: FakeResponse | None = None
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    def request(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Answer a request."""
        self.requests.append((method, target, headers))
        self._response = self._answer(method, target, body or b"", headers)

    def getresponse(self) -> FakeResponse:
        """Return the answer."""
        assert self._response is not None
        return self._response

    def close(self) -> None:
        """No-op."""


class CommandTestCase(ApiTestCase):
    """Runs commands.

    :ivar state: a state directory with an administrator's kubeconfig in it.
    """

    def setUp(self) -> None:
        """Make a state directory."""
        super().setUp()
        self.state = self.mktemp()
        os.mkdir(self.state)
        text = kubeconfig(
            server="https://127.0.0.1:8443", ca_pem=self.serving.pem, cluster="", user="root", token="t0ken"
        )
        with open(f"{self.state}/admin.kubeconfig", "w", encoding="utf-8") as file:
            file.write(text)
        self.connection = FakeConnection(self.answer)
        self.environ: dict[str, str] = {}

    def client(self, access: KubeAccess) -> TowerClient:
        """Return a client of the API in memory."""
        connection: Any = self.connection
        return TowerClient(access, lambda: connection)

    def answer(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> FakeResponse:
        """Answer one request as the proxy would."""
        path, _, query = target.partition("?")
        call = Call(
            method,
            tuple(unquote(part) for part in path.split("/")[1:]),
            dict(parse_qsl(query)),
            headers.get("Accept", ""),
            headers.get("Content-Type", ""),
            lambda: succeed(body),
        )
        results: list[Any] = []
        Deferred.fromCoroutine(self.api.answer(call)).addBoth(results.append)
        (result,) = results
        if isinstance(result, Response):
            return FakeResponse(result.code, result.body)
        refusal = refusal_of(result.value)
        return FakeResponse(refusal.code, json.dumps(status_object(refusal, "r1")).encode())

    def run_tower(self, *words: str, state: bool = True) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error of a command."""
        out, err = io.StringIO(), io.StringIO()
        argv = ["--state-dir", self.state, *words] if state else list(words)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(argv, self.client, self.environ)
            except SystemExit as e:
                code = e.code if isinstance(e.code, int) else 1
        return code, out.getvalue(), err.getvalue()

    def good(self, *words: str) -> str:
        """Return the standard output of a command that must succeed."""
        code, out, err = self.run_tower(*words)
        self.assertEqual((code, err), (0, ""))
        return out

    def bad(self, *words: str, state: bool = True) -> str:
        """Return the error line of a command that must fail."""
        code, out, err = self.run_tower(*words, state=state)
        self.assertEqual((code, out), (1, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        return err

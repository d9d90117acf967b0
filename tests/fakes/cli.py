"""The `tower` command against Tower's own API in memory: no sockets, no processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from twisted.internet.defer import Deferred, succeed

from tests.fakes.api import ApiTestCase, Stream
from tower.cli.client import TowerClient
from tower.cli.command import main
from tower.kube.kubeconfig import KubeAccess, kubeconfig
from tower.kube.status import refusal_of, status_object
from tower.web.api.calls.call import Call
from tower.web.outcome import Response, StreamingResponse


class FakeResponse:
    """A response of `http.client`."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    def read(self, limit: int) -> bytes:
        """Return the body."""
        return self._body[:limit]


class FakeWatchResponse:
    """A response of `http.client` whose body is a watch.

    :param steps: changes that are made one by one whenever all lines are read; then the user presses Ctrl-C.
    """

    status = 200

    def __init__(self, stream: Stream, steps: list[Callable[[Stream], object]]) -> None:
        self._stream = stream
        self._steps = steps

    def readline(self, limit: int) -> bytes:
        """Return the next line; empty after the end."""
        while not self._stream.lines:
            if self._stream.finished:
                return b""
            if not self._steps:
                raise KeyboardInterrupt
            self._steps.pop(0)(self._stream)
        return json.dumps(self._stream.lines.pop(0)).encode() + b"\n"


Answer: TypeAlias = FakeResponse | FakeWatchResponse


class FakeConnection:
    """A connection of `http.client` whose answers *answer* makes.

    :ivar sock: None, as before `http.client` connects.
    :ivar requests: method, target and header of each request.
    """

    sock = None

    def __init__(self, answer: Callable[[str, str, bytes, dict[str, str]], Answer]) -> None:
        self._answer = answer
        self._response: Answer | None = None
        self.requests: list[tuple[str, str, dict[str, str]]] = []

    def request(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Answer a request."""
        self.requests.append((method, target, headers))
        self._response = self._answer(method, target, body or b"", headers)

    def getresponse(self) -> Answer:
        """Return the answer."""
        assert self._response is not None
        return self._response

    def close(self) -> None:
        """No-op."""


class FakeTerminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


class CommandTestCase(ApiTestCase):
    """Runs commands.

    :ivar steps: see `FakeWatchResponse`.
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
        self.stdin = io.StringIO()
        self.steps: list[Callable[[Stream], object]] = []

    def client(self, access: KubeAccess) -> TowerClient:
        """Return a client of the API in memory."""
        connection: Any = self.connection
        return TowerClient(access, lambda: connection)

    def answer(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
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
        if isinstance(result, StreamingResponse):
            stream = Stream()
            result.start(stream)
            return FakeWatchResponse(stream, self.steps)
        refusal = refusal_of(result.value)
        return FakeResponse(refusal.code, json.dumps(status_object(refusal, "r1")).encode())

    def run_tower(self, *words: str, state: bool = True) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error of a command."""
        out, err = io.StringIO(), io.StringIO()
        argv = ["--state-dir", self.state, *words] if state else list(words)
        self.patch(sys, "stdin", self.stdin)
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
        """Return the error line of a command that must fail with exit code 1."""
        return self.failing(*words, state=state, codes=(1,))

    def wrong(self, *words: str, state: bool = True) -> str:
        """Return the error line of a command line that must be rejected, with exit code 2."""
        return self.failing(*words, state=state, codes=(2,))

    def failing(self, *words: str, state: bool = True, codes: tuple[int, ...] = (1, 2)) -> str:
        """Return the error line of a command that must end with one of *codes*."""
        code, out, err = self.run_tower(*words, state=state)
        self.assertIn(code, codes, err)
        self.assertEqual(out, "", err)
        self.assertEqual(err.count("\n"), 1, err)
        return err

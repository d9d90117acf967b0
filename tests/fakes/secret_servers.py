"""An API server in memory with one Secret."""

from __future__ import annotations

import base64
import json
from typing import Any

from twisted.web.http import Request

from tests.fakes.apiservers import Member

#: Path of the Secret.
PATH = b"/api/v1/namespaces/tower-system/secrets/tower-agent-key"


class SecretServer(Member):
    """An API server with the Secret tower-agent-key, which is empty at first.

    :ivar data: its entries, decoded; None: it does not exist.
    :ivar version: its resource version.
    :ivar refusals: code and message of the refusal by method.
    :ivar before: called before a patch is applied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, bytes] | None = {}
        self.version = 1
        self.refusals: dict[bytes, tuple[int, str]] = {}
        self.before: list[Any] = []
        self.answer = self._answer

    def patches(self) -> list[Request]:
        """Return the requests that were patches."""
        return [request for request in self.requests if request.method == b"PATCH"]

    def _answer(self, request: Request) -> tuple[int, bytes]:
        if request.method == b"PATCH" and self.before:
            self.before.pop(0)()
        refusal = self.refusals.get(request.method)
        if refusal is None and (self.data is None or request.uri != PATH):
            refusal = 404, f"secrets {request.uri.decode()} not found"
        if refusal is not None:
            return refusal[0], json.dumps({"kind": "Status", "message": refusal[1]}).encode()
        if request.method == b"PATCH":
            assert request.getHeader(b"content-type") == b"application/merge-patch+json"
            assert request.content is not None
            assert self.data is not None
            patch = json.loads(request.content.read())
            if patch["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
                return 409, b'{"kind": "Status", "message": "the object has been modified"}'
            self.data |= {name: base64.b64decode(text) for name, text in patch["data"].items()}
            self.version += 1
        return 200, json.dumps(self.object()).encode()

    def object(self) -> dict[str, Any]:
        """Return the Secret."""
        encoded = {name: base64.b64encode(data).decode() for name, data in (self.data or {}).items()}
        # an API server omits the data of an empty Secret
        data = {"data": encoded} if encoded else {}
        return {"kind": "Secret", "metadata": {"resourceVersion": str(self.version)}, **data}

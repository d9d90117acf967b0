"""A client of the API server that is just enough to fill a new cluster."""

import http.client
import json
import ssl
from pathlib import Path

HOST = "127.0.0.1"


class StartError(Exception):
    """A cluster did not start; the message names the part that failed."""


class Api:
    """A minimal client of the API server, with a client certificate."""

    def __init__(self, port: int, ca: Path, certificate: Path, key: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(ca))
        self._context.load_cert_chain(certificate, key)

    def request(self, method: str, path: str, body: object = None, kind: str = "") -> tuple[int, bytes]:
        """Send one request; return the status code and the body."""
        connection = http.client.HTTPSConnection(HOST, self._port, context=self._context, timeout=10)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": kind} if kind else {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> dict:
        """Return an object, or {} if it does not exist or the server does not answer."""
        try:
            status, data = self.request("GET", path)
        except OSError:
            return {}
        return json.loads(data) if status == 200 else {}

    def apply(self, path: str, kind: str, body: dict) -> None:
        """Create an object in the collection at `path`, or bring the one of that name into line."""
        group_version = "/".join(path.split("/")[2:4]) if path.startswith("/apis/") else "v1"
        named = f"{path}/{body['metadata']['name']}?fieldManager=realcluster&force=true"
        data = {"apiVersion": group_version, "kind": kind, **body}
        status, answer = self.request("PATCH", named, data, "application/apply-patch+yaml")
        if status not in (200, 201):
            raise StartError(f"PATCH {named}: {status} {answer.decode(errors='replace')}")

"""One HTTPS request of a login, to the front door or to an identity provider, and its JSON answer."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from attrs import field, frozen

import tower
from tower.cli.client import CommandFailed, open_connection
from tower.kube.kubeconfig import KubeAccess

#: Longest answer that is read, B.
ANSWER_LIMIT = 1 << 20

#: Time for each operation of the network, s.
TIMEOUT = 30.0


class Unreachable(CommandFailed):
    """There is no answer."""


class Untrusted(Unreachable):
    """The server's certificate cannot be verified."""


@frozen
class Reply:
    """An answer.

    :ivar value: the JSON object; empty: there is none.
    :ivar ahead: how much the server's clock is ahead of this machine's, s; 0.0: unknown.
    """

    status: int
    value: dict[str, Any] = field(repr=False)
    ahead: float = 0.0

    @property
    def message(self) -> str:
        """The text of an error, from a Kubernetes Status or an answer of OAuth."""
        for key in ("message", "error_description", "error"):
            text = self.value.get(key)
            if isinstance(text, str) and text:
                return text
        return f"HTTP status {self.status}"


def ask(
    access: KubeAccess,
    method: str,
    url: str,
    *,
    body: Mapping[str, Any] | None = None,
    form: Mapping[str, str] | None = None,
    token: str = "",
    timeout: float = TIMEOUT,
) -> Reply:
    """Return the answer to a request; redirects are not followed.

    :param access: CAs and HTTP proxy; its server is that of *url*.
    :raise Unreachable: there is none.
    """
    parts = urlsplit(url)
    fields = {"Accept": "application/json", "User-Agent": f"tower/{tower.__version__}"}
    data = None
    if token:
        fields["Authorization"] = f"Bearer {token}"
    if body is not None:
        data, fields["Content-Type"] = json.dumps(body).encode(), "application/json"
    elif form is not None:
        data, fields["Content-Type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
    server = f"{parts.scheme}://{parts.netloc}"
    connection = open_connection(access)
    connection.timeout = timeout
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, data, fields)
        answer = connection.getresponse()
        raw = answer.read(ANSWER_LIMIT)
    except ssl.SSLCertVerificationError as e:
        raise Untrusted(f"the certificate of {server} cannot be verified ({e.verify_message})") from e
    except ssl.SSLError as e:
        raise Unreachable(f"TLS with {server} failed ({e.reason or e}): check host and port") from e
    except TimeoutError as e:
        raise Unreachable(f"{server} did not answer within {timeout:g} s: check firewalls") from e
    except OSError as e:
        cause = e.strerror or e
        raise Unreachable(f"cannot reach {server}: {cause}: check host and port, and firewalls") from e
    except http.client.HTTPException as e:
        raise Unreachable(f"{server} answered no valid HTTP ({type(e).__name__})") from e
    finally:
        connection.close()
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    return Reply(answer.status, value if isinstance(value, dict) else {}, _ahead(answer.getheader("Date")))


def _ahead(date: str | None) -> float:
    """Return the lead of the server's clock, whose field has whole seconds."""
    try:
        found = parsedate_to_datetime(date or "").timestamp() + 0.5 - time.time()
    except (TypeError, ValueError):
        return 0.0
    return found if abs(found) > 2 else 0.0

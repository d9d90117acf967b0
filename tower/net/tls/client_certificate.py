"""A client certificate and its key, from memory into a TLS context, without a file on any disk."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have *context* show *certificate* (PEM; those above it may follow) and prove it with *key* (PEM).

    Python reads them from files only.  Where there is ``memfd_create`` (Linux), the file is in memory alone;
    elsewhere there is one, of mode 0600, for a moment.

    :raise ValueError: they cannot be used; the text says why and holds nothing of them.
    """
    try:
        with _file(key + b"\n" + certificate) as path:
            context.load_cert_chain(
                path, password=""
            )  # an encrypted key fails instead of asking the terminal
    except (ssl.SSLError, ValueError):
        raise ValueError("the client certificate and its key are not PEM, encrypted, or no pair") from None


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """Have a file with *data* in it that nobody else can open."""
    if not hasattr(os, "memfd_create"):
        with TemporaryDirectory(prefix="tower-") as directory:
            path = os.path.join(directory, "client.pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            yield path
        return
    with open(os.memfd_create("tower-client"), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"

"""Loads a client certificate and its key from memory into a TLS context, without a file on disk."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load *certificate* (PEM, possibly with intermediates) and *key* (PEM) into *context*.

    Python reads them from files only: from a memory file with ``memfd_create`` (Linux), elsewhere from a
    temporary one of mode 0600.

    :raise ValueError: they are invalid; the text contains nothing of them.
    """
    try:
        with _file(key + b"\n" + certificate) as path:
            # with a password, an encrypted key fails instead of prompting on the terminal
            context.load_cert_chain(path, password="")
    except (ssl.SSLError, ValueError):
        raise ValueError(
            "the client certificate and its key are not an unencrypted, matching pair in PEM"
        ) from None


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """Provide the path of a file with *data* that no other user can open."""
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

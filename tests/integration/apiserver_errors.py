"""The errors of a real kube-apiserver about its options: it ends before it connects to anything.

A start takes a second, and its error depends on the program, the options and the files only, so it is kept
next to the program for later runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from functools import cache
from pathlib import Path

from tests.integration.member import BUILD_PATIENCE, REALCLUSTER
from tests.integration.ports import free_port
from tests.integration.programs import run

#: The first line of the error.
ENDED = re.compile(r'command failed" err=(?:"(.*)"|<\n\s*(.*))|^Error: (.*)$', re.MULTILINE)

#: The end of a start whose options and files are accepted.
WITHOUT_ETCD = "error creating storage factory: context deadline exceeded"

_FOLDER = "{folder}"


@cache
def program() -> Path:
    """Return kube-apiserver; it is built if it is missing."""
    built = run([sys.executable, str(REALCLUSTER), "build"], timeout=BUILD_PATIENCE)
    return Path(built.stdout.decode().strip().splitlines()[-1]) / "kube-apiserver"


class StartErrors:
    """The errors of starts with options that name files in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        key, public = folder / "accounts.key", folder / "accounts.pub"
        run(["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", str(key)])
        run(["openssl", "ec", "-in", str(key), "-pubout", "-out", str(public)])
        serving = folder / "serving"  # else several starts would write the same certificate at once
        serving.mkdir()
        files = ("-keyout", str(serving / "apiserver.key"), "-out", str(serving / "apiserver.crt"))
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", *files])
        self._required = (
            "--etcd-servers=http://127.0.0.1:1",
            "--service-account-issuer=https://accounts",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            f"--cert-dir={serving}",
        )

    def of(self, *options: str) -> str:
        """Return the error of a start; empty: the options and files are accepted."""
        kept = self._place(options)
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            draft = kept.with_name(f"{kept.name}.{id(self)}")
            draft.write_text(self._error(options).replace(str(self._folder), _FOLDER))
            draft.rename(kept)
        error = kept.read_text().replace(_FOLDER, str(self._folder))
        return "" if error == WITHOUT_ETCD else error

    def _place(self, options: tuple[str, ...]) -> Path:
        found = program().stat()
        parts: list[str] = [str(found.st_size), str(found.st_mtime_ns)]
        for option in options:
            parts.append(option.replace(str(self._folder), _FOLDER))
            file = Path(option.partition("=")[2])
            if file.is_file():
                parts.append(file.read_bytes().hex())
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return program().parent / "errors" / digest

    def _error(self, options: tuple[str, ...]) -> str:
        listening = "--bind-address=127.0.0.1", f"--secure-port={free_port()}"
        output = run([str(program()), *self._required, *listening, *options], timeout=60).stderr.decode()
        found = ENDED.search(output)
        if found is None:
            raise AssertionError(f"{options}: {output[-2000:]}")
        quoted, first, usage = found.groups()
        return str(json.loads(f'"{quoted}"')) if quoted else str(first or usage)

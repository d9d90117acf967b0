"""``--bundle FILE``: findings, versions, settings and logs in one file for a report, without secrets."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from tower import BUILD, WHY_PURE, __version__
from tower.doctor.findings import Finding, as_json, as_text
from tower.drafts import draft_of
from tower.errors import ConfigurationError
from tower.escaping import escaped

#: Part of each log that is included, its end, B.
LOG_LIMIT = 4 << 20

#: Largest part of a listing, files.
_LISTED = 500

_REMOVED = "[removed]"

#: Secrets, and their replacements.
_SECRETS: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # also without an end: the log may be cut
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", _REMOVED),
        (r"\btowerk?-[A-Za-z0-9_-]{43}", _REMOVED),
        # a proxy's login, also without a scheme
        (r"(?im)^((?:https?|all)_proxy=(?:[a-z]+://)?).*@", rf"\1{_REMOVED}@"),
        # the lengths are limited because the time grows with their squares
        (r"\beyJ[A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]{1,8000}(?:\.[A-Za-z0-9_-]*)?", _REMOVED),
        (r"(?i)\b(bearer|basic)([ \t]+|%20)[A-Za-z0-9._~+/=-]+", rf"\1 {_REMOVED}"),
        (r"(?i)(--token(?:[ =]))\S+", rf"\1{_REMOVED}"),
        (
            (
                r"(?i)((?:token|password|passwd|secret|passphrase|client-key-data|access_key|secret_key)\b"
                r"\\?[\"']?\s*[:=]\s*\\?[\"']?)[^\s\"',}\\]+"
            ),
            rf"\1{_REMOVED}",
        ),
        (r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^/\s@\"']+@", rf"\1{_REMOVED}@"),
    )
)

#: Variables that are listed, by their beginning or name; values are redacted.
_VARIABLES = re.compile(
    r"(?i)TOWER_\w+|KUBECONFIG|KUBERNETES_\w+|(?:https?|no|all)_proxy|SSL_CERT_\w+|LANG|TZ"
)
_SECRET_VARIABLES = re.compile(r"(?i)\w*(?:TOKEN|PASSWORD|SECRET)\w*")


def redact(text: str) -> str:
    """Return *text* without keys, tokens and passwords."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def write_bundle(
    path: Path,
    findings: Sequence[Finding],
    environ: Mapping[str, str],
    directory: Path | None,
    logs: Iterable[str],
) -> None:
    """Write the bundle, a gzipped tar archive, with mode 0600.

    :param directory: a state directory, whose files are listed; their contents are not included.
    :param logs: names of log files.
    :raise ConfigurationError: the file exists or cannot be written, or a log cannot be read.
    """
    parts = {
        "doctor.txt": as_text(findings) + "\n",
        "doctor.json": as_json(findings) + "\n",
        "about.json": json.dumps(_about(), indent=2) + "\n",
        "environment.txt": "".join(
            f"{name}={value}\n" for name, value in sorted(_environment(environ).items())
        ),
    }
    if directory is not None:
        parts["state-directory.txt"] = _listing(directory)
    for number, log in enumerate(logs, 1):
        parts[f"logs/{number}-{os.path.basename(log)}"] = _tail(log)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        for name, text in parts.items():
            data = redact(text).encode("utf-8", "replace")
            member = tarfile.TarInfo(f"tower-doctor/{name}")
            member.size, member.mode = len(data), 0o600
            file.addfile(member, io.BytesIO(data))
    try:
        with draft_of(path) as draft:
            draft.write(archive.getvalue())
            draft.put(replace=False)
    except FileExistsError as e:
        raise ConfigurationError(f"--bundle {path}: exists: choose another name") from e
    except OSError as e:
        raise ConfigurationError(
            f"--bundle {path}: {(e.strerror or str(e)).lower()}: choose another name"
        ) from e


def _about() -> dict[str, object]:
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "tower": __version__,
        "build": BUILD,
        "why pure": WHY_PURE,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: _REMOVED if _SECRET_VARIABLES.fullmatch(name) else escaped(value)
        for name, value in environ.items()
        if _VARIABLES.fullmatch(name)
    }


def _listing(directory: Path) -> str:
    """Return mode, size and name of the files in *directory*."""
    try:
        names = sorted(directory.iterdir())[:_LISTED]
        statuses = [(name, name.lstat()) for name in names]
    except OSError as e:
        return f"{directory}: {e.strerror}\n"
    lines = [
        f"{stat.filemode(status.st_mode)} {status.st_uid} {status.st_size} {escaped(name.name)}\n"
        for name, status in [(directory, directory.stat()), *statuses]
    ]
    return "".join(lines)


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_LIMIT))
            data = file.read(LOG_LIMIT)
    except OSError as e:
        raise ConfigurationError(
            f"--log {path}: {(e.strerror or str(e)).lower()}: choose another file"
        ) from e
    text = data.decode("utf-8", "replace")
    # the first line may be the rest of a secret
    return text if size <= LOG_LIMIT else text.partition("\n")[2]

"""Events of changed files that options name: the audit policy, tokens, certificates, CAs, kubeconfigs.

Each new content that is in use is an event, with digests of the last and the new content.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Any

from twisted.logger import Logger

from tower.kube.audit.policy import COMPLETE, NONE
from tower.options.followed_file import Followed
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.changes import NEW_DIGEST, OLD_DIGEST, PROXY_USER, change_event, change_of
from tower.web.access.audit.formats import GROUP, moment, user_of
from tower.web.access.authentication.token_key import token_key

#: Resource of the events.
OPTION_FILES = "optionfiles"

#: Annotation: the option and its value.
OPTION = f"{GROUP}/option"

# Files whose content is public, or long and random.  Others may have tokens or passwords that can be guessed:
# a plain digest would show whether a guess is right.
_UNGUESSABLE = frozenset(
    {
        "audit-policy-file",
        "authentication-config",
        "authorization-policy-file",
        "client-ca-file",
        "requestheader-client-ca-file",
        "service-account-key-file",
        "tls-cert-file",
        "tls-sni-cert-key",
    }
)

# The content is a certificate and its private key; only the certificate counts.
_PAIRS = frozenset({"tls-cert-file", "tls-sni-cert-key"})


class FileRecorder:
    """Writes an event to *audit* for each new content of a file."""

    _log = Logger()

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def observe(self, file: Followed[Any, Any], *, is_always_written: bool = False) -> None:
        """Write the events of *file*.

        :param is_always_written: even if the audit policy has no events for it.
        """
        file.on_use = partial(self._used, file, is_always_written)

    def _used(self, file: Followed[Any, Any], is_always_written: bool, last: Any, new: Any) -> None:
        with self._log.failuresHandled("cannot write the audit event of {file}", file=file.name):
            info = change_of("update", OPTION_FILES, file.option)
            decision = self._audit.policy.decide(PROXY_USER, (), info)
            if is_always_written or not (decision.level == NONE or COMPLETE in decision.omitted):
                old, digest = _digest(file.option, last), _digest(file.option, new)
                annotations = {OPTION: file.name, OLD_DIGEST: old, NEW_DIGEST: digest}
                now = moment(self._audit.seconds())
                user = user_of(PROXY_USER, ())
                self._audit.put(change_event(info, info.path, user, annotations, now))


def _digest(option: str, content: bytes | tuple[bytes, ...]) -> str:
    """Return the digest of a file, or of several, joined by newlines."""
    parts = (content,) if isinstance(content, bytes) else content
    found = sha256(parts[0] if option in _PAIRS else b"\n".join(parts))
    if option in _UNGUESSABLE:
        return f"sha256:{found.hexdigest()}"
    return token_key("salted", found.digest())

"""Configuration of the fake cloud, and installation of its machines' keys.

::

    [fake]
    instance = node-1 127.0.0.1:2201           ; name and address of its sshd; repeatable
    instance = node-2 [::1]:2202 stopped
    authorized-keys = /run/test/%h/keys        ; %h: the instance's name, %u: the user
    delay = 200ms                              ; before each response
    fail = list                                ; this call fails; "all": every call
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

from attrs import field, frozen

from tower.cloud.config.public_key import PublicKey, read_public_key
from tower.cloud.config.sections import Section
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError, CloudError
from tower.cloud.gcfg import parse
from tower.cloud.interfaces import EXTERNAL_IP, HOSTNAME, Instance, NodeAddress, Zone
from tower.drafts import draft_of
from tower.errors import ConfigurationError
from tower.net.addresses import parse_address
from tower.options.values import parse_duration

#: Accepted keys.
KEYS = ("instance", "authorized-keys", "delay", "fail", "zone", "region")

#: Names that are allowed in paths.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)

#: Mode of a new file with keys.
_NEW_MODE = 0o644

#: Maximum size of a file with keys, B.
_FILE_LIMIT = 1 << 20

#: Types of keys that current versions of sshd support.
_TYPES = frozenset(
    (
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    )
)


@frozen
class Fleet:
    """One configuration.

    :ivar delay: before each response, s.
    :ivar failing: the calls that fail; ``all``: every call.
    """

    machines: tuple[Instance, ...] = ()
    authorized_keys: str = ""
    delay: float = 0.0
    failing: frozenset[str] = frozenset()
    zone: Zone = field(factory=Zone)


def read_fleet(config: ConfigText) -> Fleet:
    """Read a configuration; raise `CloudConfigError` with file and line."""
    sections = parse(config)
    sections.warn_about_unknown({"fake": KEYS})
    section = sections.section("fake")
    zone = Zone(section.text("zone"), section.text("region"))
    machines: dict[str, Instance] = {}
    for value in section.values.get("instance", ()):
        machine = _machine(section, value.line, value.text or "", zone)
        if machine.name in machines:
            raise CloudConfigError(section.file, value.line, "instance names must be unique")
        machines[machine.name] = machine
    try:
        delay = parse_duration(section.text("delay", "0"))
    except ValueError:
        raise section.wrong("delay", "delay must be a duration like 1.5s or 2m") from None
    failing = frozenset(value.text or "all" for value in section.values.get("fail", ()))
    keys = section.text("authorized-keys")
    if keys and not keys.startswith("/"):
        raise section.wrong("authorized-keys", "authorized-keys must be an absolute path")
    return Fleet(tuple(machines.values()), keys, delay, failing, zone)


def _machine(section: Section, line: int, text: str, zone: Zone) -> Instance:
    words = text.split()
    if not (len(words) == 2 or words[2:] == ["stopped"]) or not _PLAIN.fullmatch(words[0]):
        raise CloudConfigError(section.file, line, "instance must have the form 'NAME HOST[:PORT] [stopped]'")
    try:
        host, port = parse_address(words[1], 22)
    except ConfigurationError:
        raise CloudConfigError(section.file, line, "the instance's address must be HOST[:PORT]") from None
    addresses = (NodeAddress(EXTERNAL_IP, host), NodeAddress(HOSTNAME, words[0]))
    return Instance(
        words[0],
        f"fake://{words[0]}",
        addresses,
        type="fake",
        zone=zone,
        running=len(words) == 2,
        ssh_port=port,
    )


def install_key(pattern: str, user: str, key: bytes, machines: tuple[Instance, ...]) -> None:
    """Write a key to files that the machines' sshds read.

    :param pattern: a path; ``%h`` in it is a machine's name, ``%u`` the user.  For an existing directory, or
        with a trailing slash, the file in it with the user's name.
    :raise CloudError: the key is invalid, or a file cannot be written.
    """
    public = read_public_key(key, _TYPES)
    names = [user, *(machine.name for machine in machines)]
    if bad := [name for name in names if not _PLAIN.fullmatch(name)]:
        raise CloudError(f"authorized-keys: {bad[0]!r} is not allowed as a file's name")
    if pattern.endswith("/") or Path(pattern).is_dir():
        pattern = os.path.join(pattern, "%u")
    hosts = [each.name for each in machines] if "%h" in pattern else [""]
    for path in [Path(pattern.replace("%h", host).replace("%u", user)) for host in hosts]:
        try:
            _add_line(path, public, user)
        except OSError as e:
            raise CloudError(f"authorized-keys {path}: {e.strerror}") from None


def _add_line(path: Path, public: PublicKey, comment: str) -> None:
    """Add a key to a file atomically; readers see the old or the new contents.

    Preserves mode and, as root, owner.  A new file is readable for all users: sshd may run as another one.

    :raise OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = None
    try:
        with path.open("rb") as file:
            old = file.read(_FILE_LIMIT + 1)
            status = os.fstat(file.fileno())
    except FileNotFoundError:
        old = b""
    if len(old) > _FILE_LIMIT:
        raise OSError(None, f"larger than {_FILE_LIMIT} B")
    kind, blob = public.line.encode().split()
    for line in old.splitlines():
        words = line.split()
        if (kind, blob) in pairwise(words) and not line.startswith(b"#"):
            return
    if old and not old.endswith(b"\n"):
        old += b"\n"
    with draft_of(path) as draft:
        draft.write(old + public.line.encode() + b" " + comment.encode() + b"\n", _NEW_MODE)
        if status is not None:
            draft.resemble(status)
        draft.put()

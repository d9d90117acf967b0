"""Tests of `tower.nodes.ssh.known_hosts` and `tower.nodes.ssh.host_keys`."""

from __future__ import annotations

import hmac
import os
from base64 import b64encode
from pathlib import Path

from twisted.conch.ssh.common import NS
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import KEYS, key_line
from tests.fakes.ssh_pairs import AGENT_KEY, HOST_KEY
from tower.clusters.node import Node
from tower.conch.transport.keys import ED25519
from tower.conch.transport.signatures import ECDSA_P256, RSA, RSA_SHA2_256, RSA_SHA2_512, SIGNATURES
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeyRefused, HostKeyUnknown, preferred_algorithms
from tower.nodes.ssh.known_hosts import LARGEST, KnownHosts, parse_line

NODE = Node("h1.example.org")
ODD = Node("h1.example.org", 2222)
SIX = Node("2001:db8::1", 2222)
ED = KEYS[ED25519]
OTHER = HOST_KEY.blob


def hashed(name: str) -> str:
    """Return a name as ``ssh-keygen -H`` writes it."""
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{b64encode(salt).decode()}|{b64encode(digest).decode()}"


class FileTestCase(SynchronousTestCase):
    """A known_hosts file."""

    def setUp(self) -> None:
        """Choose its name."""
        self.path = Path(self.mktemp())
        self.known = KnownHosts(self.path)
        self.age = 0

    def write(self, *lines: str) -> None:
        """Write the file."""
        self.path.write_text("\n".join(lines) + "\n")
        self.age += 1
        os.utime(self.path, ns=(self.age, self.age))

    def refused(self, node: Node = NODE, blob: bytes = ED.blob) -> HostKeyRefused:
        """Return the error."""
        error: HostKeyRefused = self.assertRaises(HostKeyRefused, self.known.judge, node, blob)
        return error

    def accepts(self, *names: str, node: Node = NODE) -> bool:
        """Return whether a line for these names makes *node* known."""
        self.write(f"{','.join(names)} {key_line(ED.blob)} a comment")
        try:
            self.known.judge(node, ED.blob)
        except HostKeyUnknown:
            return False
        return True


class NamesTests(FileTestCase):
    """Which lines are about a node."""

    def test_plain(self) -> None:
        """A name, one of several, in upper and lower case; not another one."""
        self.assertTrue(self.accepts("h1.example.org"))
        self.assertTrue(self.accepts("192.0.2.1", "H1.Example.Org"))
        self.assertFalse(self.accepts("h2.example.org"))
        self.assertFalse(self.accepts("h1"))
        self.assertTrue(self.accepts("h1.example.org", node=Node("H1.example.org")))

    def test_port(self) -> None:
        """A port other than 22 is in the name; without such a line, one without a port is used."""
        self.assertTrue(self.accepts("[h1.example.org]:2222", node=ODD))
        self.assertTrue(self.accepts("h1.example.org", node=ODD))
        self.assertFalse(self.accepts("[h1.example.org]:2222"))
        self.assertFalse(self.accepts("[h1.example.org]:2223", node=ODD))
        self.assertTrue(self.accepts("[2001:db8::1]:2222", node=SIX))
        self.assertTrue(self.accepts("2001:db8::1", node=SIX))

    def test_port_first(self) -> None:
        """A line with the port is the only one that counts."""
        self.write(f"h1.example.org {key_line(ED.blob)}", f"[h1.example.org]:2222 {key_line(OTHER)}")
        self.known.judge(ODD, OTHER)
        self.assertIn("line 2", str(self.refused(ODD)))

    def test_wildcards(self) -> None:
        """Stars and question marks, and names that are excepted."""
        self.assertTrue(self.accepts("*.example.org"))
        self.assertTrue(self.accepts("h?.example.*"))
        self.assertTrue(self.accepts("*"))
        self.assertFalse(self.accepts("*.example.net"))
        self.assertFalse(self.accepts("h??.example.org"))
        self.assertFalse(self.accepts("*.example.org", "!h1.example.org"))
        self.assertTrue(self.accepts("*.example.org", "!h2.example.org"))
        self.assertFalse(self.accepts("!h2.example.org"))
        self.assertFalse(self.accepts("h1xexample.org"))

    def test_hashed(self) -> None:
        """A hashed name, with and without a port."""
        self.assertTrue(self.accepts(hashed("h1.example.org")))
        self.assertFalse(self.accepts(hashed("h2.example.org")))
        self.assertTrue(self.accepts(hashed("[h1.example.org]:2222"), node=ODD))

    def test_name(self) -> None:
        """A node whose address the file does not have is looked up by its name; the address goes first."""
        node = Node("192.0.2.1", name="h1")
        self.assertTrue(self.accepts("h1", node=node))
        self.write(f"h1 {key_line(ED.blob)}", f"192.0.2.1 {key_line(OTHER)}")
        self.assertNotIsInstance(self.refused(node), HostKeyUnknown)
        self.known.judge(node, OTHER)

    def test_knows(self) -> None:
        """It returns whether it has any key of a node."""
        self.write(f"h1.example.org {key_line(ED.blob)}", f"@revoked h2 {key_line(OTHER)}")
        self.assertTrue(self.known.knows(NODE))
        self.assertFalse(self.known.knows(Node("h2")))


class KeysTests(FileTestCase):
    """Verification of keys."""

    def test_several(self) -> None:
        """A node may have several keys of one type, and of several."""
        self.write(
            f"h1.example.org {key_line(OTHER)}",
            f"h1.example.org {key_line(ED.blob)}",
            f"h1.example.org {key_line(KEYS[RSA].blob, RSA)}",
        )
        for blob in (OTHER, ED.blob, KEYS[RSA].blob):
            self.known.judge(NODE, blob)
        self.assertIn(AGENT_KEY.fingerprint, str(self.refused(NODE, AGENT_KEY.blob)))

    def test_unknown(self) -> None:
        """A node that the file does not have: the text has node, key, file and the cure."""
        self.write("# nothing")
        error = self.refused(ODD)
        self.assertIsInstance(error, HostKeyUnknown)
        self.assertEqual(error.fingerprint, ED.fingerprint)
        for word in (
            "h1.example.org:2222",
            f"ssh-ed25519 {ED.fingerprint}",
            str(self.path),
            "`ssh-keyscan -p 2222 h1.example.org`",
            "--ssh-host-keys=accept-new",
        ):
            self.assertIn(word, str(error))

    def test_mismatch(self) -> None:
        """A key other than the known one: the error has both, with file and line, and the cure."""
        self.write("", f"h1.example.org {key_line(OTHER)}", f"other {key_line(ED.blob)}")
        error = self.refused()
        self.assertNotIsInstance(error, HostKeyUnknown)
        for word in (
            "h1.example.org:22 ",
            ED.fingerprint,
            f"not ssh-ed25519 {HOST_KEY.fingerprint} of {self.path} line 2",
            "`ssh-keyscan -p 22 h1.example.org`",
        ):
            self.assertIn(word, str(error))

    def test_other_type(self) -> None:
        """A key of a type that the file lacks for a known node is rejected, not a first key."""
        self.write(f"h1.example.org {key_line(KEYS[RSA].blob, RSA)}")
        error = self.refused()
        self.assertNotIsInstance(error, HostKeyUnknown)
        self.assertIn(f"not ssh-rsa {KEYS[RSA].fingerprint}", str(error))

    def test_revoked(self) -> None:
        """A revoked key is refused although another line has it, and does not hide lines without the port."""
        good = f"h1.example.org {key_line(ED.blob)}"
        self.write(good, f"@revoked * {key_line(OTHER)}")
        self.known.judge(ODD, ED.blob)
        self.assertIn("line 2 revokes", str(self.refused(ODD, OTHER)))
        self.write(good, f"@revoked h1.example.org {key_line(ED.blob)}")
        self.assertIn("line 2 revokes", str(self.refused()))
        self.write(good, f"@revoked h2.example.org {key_line(ED.blob)}")
        self.known.judge(NODE, ED.blob)

    def test_order(self) -> None:
        """The algorithms of a node's known key types come first."""
        self.write(f"h1.example.org {key_line(KEYS[RSA].blob, RSA)}")
        self.assertEqual(self.known.algorithms(NODE)[:3], [RSA_SHA2_512, RSA_SHA2_256, ED25519])
        self.write(
            f"h1.example.org {key_line(KEYS[ECDSA_P256].blob, ECDSA_P256)}",
            f"@revoked h1.example.org {key_line(KEYS[RSA].blob, RSA)}",
        )
        self.assertEqual(self.known.algorithms(NODE)[:2], [ECDSA_P256, ED25519])
        every = [name for names in SIGNATURES.values() for name in names]
        self.assertEqual(sorted(self.known.algorithms(NODE)), sorted(every))
        self.assertEqual(self.known.algorithms(Node("h2")), every)


class FileTests(FileTestCase):
    """Changes of the file."""

    def test_changed(self) -> None:
        """The file is read again when it has changed, and not otherwise."""
        self.write(f"h1.example.org {key_line(OTHER)}")
        self.refused()
        self.write(f"h1.example.org {key_line(ED.blob)}")
        self.known.judge(NODE, ED.blob)
        before = self.known.lines
        self.known.judge(NODE, ED.blob)
        self.assertIs(self.known.lines, before)

    def test_gone(self) -> None:
        """Without the file no node is known; the error names the cause, and the log does once."""
        self.write(f"h1.example.org {key_line(ED.blob)}")
        self.known.judge(NODE, ED.blob)
        self.path.unlink()
        with capturedLogs() as events:
            error = self.refused()
            self.refused()
        self.assertIsInstance(error, HostKeyUnknown)
        self.assertIn(f"{self.path} (which cannot be read: no such file or directory)", str(error))
        self.assertEqual(len(events), 1)
        self.write(f"h1.example.org {key_line(ED.blob)}")
        self.known.judge(NODE, ED.blob)

    def test_too_large(self) -> None:
        """A file without end is not read."""
        with self.path.open("wb") as file:
            file.truncate(LARGEST + 1)
        with capturedLogs():
            self.assertIn("more than", str(self.refused()))

    def test_bad_lines(self) -> None:
        """Invalid lines are ignored, with their number in the log; the others are used."""
        good = key_line(ED.blob)
        self.write(
            "h1.example.org",
            "h1.example.org ssh-ed25519",
            "h1.example.org ssh-ed25519 !!!!",
            f"h1.example.org ssh-rsa {b64encode(ED.blob).decode()}",
            f"h1.example.org ssh-ed25519 {b64encode(ED.blob[:9]).decode()}",
            f"@what h1.example.org {good}",
            f"|1|x|y {good}",
            f"|1|{b64encode(b'salt').decode()}|{b64encode(b'short').decode()} {good}",
            f"a,,b {good}",
            f"h1.example.org ssh-dss {b64encode(NS(b'ssh-dss')).decode()}",
            f"@cert-authority *.example.org {good}",
            "   # a comment",
            f"  h1.example.org   {good}",
        )
        with capturedLogs() as events:
            self.known.judge(NODE, ED.blob)
        self.assertEqual(len(events), 11)
        self.assertIn("line 11: ignored: host certificates are not supported", formatEvent(events[-1]))

    def test_bad_line_9(self) -> None:
        """A line whose key has the right head and nothing else is of no node."""
        line = parse_line(9, f"h1 ssh-ed25519 {b64encode(ED.blob[:15]).decode()}")
        assert line is not None
        self.assertNotEqual(line.blob, ED.blob)


class AnyHostKeyTests(SynchronousTestCase):
    """Upstream's blindness, by an explicit flag."""

    def test_all(self) -> None:
        """Every key will do, and nothing is kept."""
        every = AnyHostKey()
        every.judge(NODE, b"anything")
        every.accepted(NODE, b"anything")
        self.assertEqual(every.algorithms(NODE), preferred_algorithms(()))

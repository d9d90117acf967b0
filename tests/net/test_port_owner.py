"""Tests of `tower.net.port_owner`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.net.port_owner import port_owner

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = (
    "   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0 0 {inode} 1\n"
)


class PortOwnerTests(SynchronousTestCase):
    """A /proc with two processes."""

    def setUp(self) -> None:
        """Write it."""
        self.proc = Path(self.mktemp())
        (self.proc / "net").mkdir(parents=True)
        lines = [LINE.format(port=8443, state="0A", inode=77), LINE.format(port=9000, state="01", inode=78)]
        (self.proc / "net" / "tcp").write_text(HEAD + "".join(lines))
        for pid, name, inode in (("12", "other", 78), ("4711", "ng\nnx", 77)):
            (self.proc / pid / "fd").mkdir(parents=True)
            (self.proc / pid / "fd" / "3").symlink_to(f"socket:[{inode}]")
            (self.proc / pid / "comm").write_text(f"{name}\n")
        (self.proc / "13").mkdir()  # of another user

    def test_found(self) -> None:
        """The process that listens is named."""
        self.assertEqual(port_owner(8443, self.proc), "process 4711 (ng\\nnx)")

    def test_unknown(self) -> None:
        """A connection is not a listener, and a process may be out of sight."""
        self.assertEqual(port_owner(9000, self.proc), "")
        self.assertEqual(port_owner(1, self.proc), "")
        (self.proc / "4711" / "fd" / "3").unlink()
        self.assertEqual(port_owner(8443, self.proc), "")
        self.assertEqual(port_owner(8443, Path(self.mktemp())), "")

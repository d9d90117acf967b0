"""Tests of `tower.net.tls.session`: two sessions in memory."""

from __future__ import annotations

import random
import ssl

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.sockets import HOST, client_context, server_context
from tower.net.tls.session import IDLE_RECORDS, PIECE, TLSEnded, TLSSession

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
BULK = random.Random(2).randbytes(PIECE)


def shake(
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, context: ssl.SSLContext | None = None
) -> tuple[TLSSession, TLSSession]:
    """Return a client's and a server's session after the handshake.

    :param context: the server's, if it is a special one.
    """
    near = TLSSession(client_context(), server_side=False, server_hostname=HOST)
    far = TLSSession(context or server_context(version), server_side=True)
    done = False
    while not done:
        done = near.handshake()
        far.feed(memoryview(near.take()))
        done = far.handshake() and done
        near.feed(memoryview(far.take()))
    return near, far


def read(session: TLSSession, room: int = 1 << 20) -> tuple[bytes, bool]:
    """Return all that *session* holds, read *room* bytes at a time, and whether the peer ended."""
    buffer, got = memoryview(bytearray(room)), b""
    try:
        while count := session.read_into(buffer):
            got += buffer[:count]
    except TLSEnded:
        return got, True
    return got, False


class TLSSessionTests(SynchronousTestCase):
    """Encrypts, decrypts and ends."""

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(1, 40_000), max_size=6), st.integers(1, 70_000), st.data())
    def test_any_split(self, sizes: list[int], room: int, data: st.DataObject) -> None:
        """Plain text does not depend on how cipher text was cut or how much is read at once."""
        near, far = shake()
        wire = b"".join(far.encrypt(BULK[:size]) for size in sizes) + far.end()
        got, ended = b"", False
        while wire:
            cut = data.draw(st.integers(1, min(len(wire), 30_000)))
            near.feed(memoryview(wire[:cut]))
            wire = wire[cut:]
            some, ended = read(near, room)
            got += some
            self.assertEqual(near.waiting, ended)
        self.assertEqual((got, ended), (b"".join(BULK[:size] for size in sizes), True))

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(1, 40_000), max_size=6), st.data())
    def test_decrypt(self, sizes: list[int], data: st.DataObject) -> None:
        """Decrypting at once has the same result for any input: a record, several, or a part of one."""
        for version in VERSIONS:
            near, far = shake(version)
            pieces = [far.encrypt(BULK[:size]) for size in sizes]
            pieces.append(far.end())
            if data.draw(st.booleans()):
                wire = b"".join(pieces)
                cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=4)))
                pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
            got, ended, buffer = b"", False, memoryview(bytearray(20_000))
            for piece in pieces:
                try:
                    count = near.decrypt(memoryview(piece), buffer)
                    while count:
                        got += buffer[:count]
                        count = near.read_into(buffer) if near.more else 0
                except TLSEnded:
                    ended = True
            self.assertEqual((got, ended), (b"".join(BULK[:size] for size in sizes), True))
            self.assertTrue(near.waiting)

    def test_waiting(self) -> None:
        """Bytes inside are announced: encrypted, decrypted, or the end."""
        near, far = shake()
        self.assertFalse(far.waiting)
        near.feed(memoryview(far.encrypt(b"x" * 100)))
        self.assertTrue(near.waiting)
        near.read_into(memoryview(bytearray(10)))
        self.assertTrue(near.waiting)
        self.assertEqual(read(near), (b"x" * 90, False))
        self.assertFalse(near.waiting)
        near.feed(memoryview(far.end()))
        self.assertEqual(read(near), (b"", True))
        self.assertTrue(near.waiting)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(1, 40_000), min_size=1, max_size=5), st.data())
    def test_kept(self, sizes: list[int], data: st.DataObject) -> None:
        """Unread bytes are kept when their buffer is used again, with any split."""
        near, far = shake()
        wire = b"".join(far.encrypt(BULK[:size]) for size in sizes)
        shared, some, got = bytearray(len(wire)), memoryview(bytearray(30_000)), b""
        while wire:
            cut = data.draw(st.integers(1, len(wire)))
            shared[:cut] = wire[:cut]
            wire = wire[cut:]
            near.feed(memoryview(shared)[:cut])
            for _ in range(data.draw(st.integers(0, 2))):
                got += some[: near.read_into(some)]
            near.keep()
            shared[:] = bytes(len(shared))
        self.assertEqual(near.more, len(got) < sum(sizes))
        self.assertEqual(got + read(near)[0], b"".join(BULK[:size] for size in sizes))

    def test_end_with_bytes_waiting(self) -> None:
        """Ending our side loses nothing that came before and was not read, and nothing that comes after."""
        for version in VERSIONS:
            for already in (0, 10):
                for near, far in (shake(version), shake(version)[::-1]):
                    first = far.encrypt(b"a" * 1000) + far.encrypt(b"b" * 50)
                    second = far.encrypt(b"c" * 500)
                    near.feed(memoryview(first + second[:100]))
                    if already:
                        near.read_into(memoryview(bytearray(already)))
                    far.feed(memoryview(near.end()))
                    self.assertEqual(read(far), (b"", True))
                    self.assertTrue(near.waiting)
                    got, _ = read(near, 7)
                    near.feed(memoryview(second[100:] + far.encrypt(b"d") + far.end()))
                    rest, ended = read(near)
                    expected = b"a" * (1000 - already) + b"b" * 50 + b"c" * 500 + b"d"
                    self.assertEqual((got + rest, ended), (expected, True))

    def test_tampered(self) -> None:
        """Cipher text that is not authentic is an error."""
        near, far = shake()
        wire = bytearray(far.encrypt(b"x" * 100))
        wire[50] ^= 1
        near.feed(memoryview(wire))
        self.assertRaises(ssl.SSLError, read, near)
        self.assertTrue(near.take())  # the alert

    def test_talk(self) -> None:
        """A peer may send many records without data, but not without limit: each takes time."""
        for tickets in (IDLE_RECORDS, IDLE_RECORDS + 1):
            context = server_context.__wrapped__()
            context.num_tickets = tickets
            for with_data in (False, True):
                near, far = shake(context=context)
                if with_data:
                    near.feed(memoryview(far.encrypt(b"x")))
                if tickets > IDLE_RECORDS:
                    self.assertRaisesRegex(ssl.SSLError, "too many records", read, near)
                else:
                    self.assertEqual(read(near), (b"x" * with_data, False))

    def test_talk_between(self) -> None:
        """Records with data compensate for those without."""
        context = server_context.__wrapped__()
        context.num_tickets = IDLE_RECORDS
        near, far = shake(context=context)
        self.assertEqual(read(near), (b"", False))
        for at_once in (False, True):
            wire, buffer = memoryview(far.encrypt(b"x")), memoryview(bytearray(20_000))
            if at_once:
                self.assertEqual(near.decrypt(wire, buffer), 1)
            else:
                near.feed(wire)
                self.assertEqual(near.read_into(buffer), 1)
        near.count_idle()
        near.count_idle()
        self.assertRaisesRegex(ssl.SSLError, "too many records", near.count_idle)

    def test_behind_the_handshake(self) -> None:
        """Bytes after the handshake are not lost, and are kept."""
        near = TLSSession(client_context(), server_side=False, server_hostname=HOST)
        far = TLSSession(server_context(), server_side=True)
        near.handshake()
        far.feed(memoryview(near.take()))
        far.handshake()
        near.feed(memoryview(far.take()))
        self.assertTrue(near.handshake())
        wire = bytearray(near.take() + b"".join(near.encrypt(b"%d " % each) for each in range(100)))
        far.feed(memoryview(wire))
        self.assertTrue(far.handshake())
        wire[:] = bytes(len(wire))
        self.assertLess(far._incoming.pending, 1000)
        self.assertTrue(far.more)
        self.assertEqual(read(far)[0], b"".join(b"%d " % each for each in range(100)))

"""Fakes and kits that several test modules use: peers, pipes, sockets and stores in memory."""

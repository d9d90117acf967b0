"""Additions to Twisted's reactor: poller, clocks, timers, cooperative work, worker thread, log batches.

Start with `tower.reactor.poller`: all sockets of the data path behind one descriptor.  Types of reactors are
in `tower.reactor.interfaces`.  Imports Twisted only, no other room.
"""

"""What Tower adds to Twisted's reactor: poller, clocks, timers, cooperative work, worker thread, log batches.

Start with `tower.reactor.poller`: all sockets of the data path behind one descriptor.  Imports Twisted and
`tower.errors`; no other room.
"""

"""Tower's reactor and additions to Twisted's: poller, clocks, timers, cooperative work, worker thread, log
batches.

Start with `tower.reactor.poller`: all sockets of the data path behind one descriptor.
`tower.reactor.epoll_reactor` is Twisted's reactor with the poller in it.  Types of reactors are in
`tower.reactor.interfaces`.  Imports Twisted only, no other room.
"""

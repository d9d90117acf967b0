"""Tower's reactor, its poller, clocks, timers, cooperative work, worker thread and log batches.

Start with `tower.reactor.poller`: it waits for all sockets of the data path.
`tower.reactor.epoll_reactor` is Twisted's epoll reactor with the poller in it.  Types of reactors are in
`tower.reactor.interfaces`.  Imports Twisted only, no other room.
"""

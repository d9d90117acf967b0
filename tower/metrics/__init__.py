"""Metrics for Prometheus: the parts that the proxy and the agent share.

The data path only adds to plain integers.  A collector reads them at each scrape: `families` has the form of
its metrics, `histogram` counts durations, `page` writes the text in pieces between which the reactor runs,
and `port` serves it.  `process` and `loop_lag` have the metrics of every process.  May import `tower.reactor`
and below.
"""

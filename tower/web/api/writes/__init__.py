"""Writes of clusters by API clients.

`cluster_writer` serves the requests, `requests` reads their bodies and options, `cluster_object` validates
objects, and `cluster_writes` computes the results.  Imports `tower.web.api.fields`, `tower.web.api.calls`
and lower rooms.
"""

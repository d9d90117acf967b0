"""Requests to Tower's own API, as its resources see them.

Start with `call`; `bodies` parses JSON and YAML.  Imports
`tower.web.api.discovery`, `tower.web.api.table`, `tower.web.gateway` and lower rooms.
"""

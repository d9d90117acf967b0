"""Clusters of type ssh in the `tower` command.

Start with `flags`: options of such clusters, and the fields of the API that they set.  `view` shows their
settings and nodes.  May import `tower.cli.output`, `tower.cli.client` and lower rooms.
"""

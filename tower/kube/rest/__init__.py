"""Client of the host cluster's API server, in the terms of client-go.

Start with `tower.kube.rest.host_api` (the interface).  `tests.kube.rest.fake_host` implements it in memory.
May import what `tower.kube` may.
"""

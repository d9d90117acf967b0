"""Client of the host cluster's API server, in the terms of client-go.

Start with `tower.kube.rest.host_api` (the interface).  `tests.kube.rest.fake_host` implements it in memory.
Requests go through `tower.kube.client`, as those to members, and not through treq: each connection needs a
verified TLS pipe and the current credential, and treq would add redirects, cookies and changed URLs.
May import what `tower.kube` may.
"""

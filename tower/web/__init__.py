"""The proxy's HTTP side.

* `outcome`: the results of a router; `request_id` and `request_kind`: facts for logs and metrics;
* `gateway`: users' connections, requests, and their relay into tunnels;
* `access`: authentication, authorization, sessions and the audit log;
* `api`: Tower's own API;
* `ports`: the routers of the proxy's ports, and the clusters' own ports.

Each imports only those above it, and the rooms below `tower.web`; `gateway` also uses the types of `access`.
Start with `tower.web.gateway.gateway`; `tower.proxy` puts the parts together.  Nothing is re-exported.
"""

"""The planes of the proxy: each makes the parts of one concern from the options, and the planes before it.

In their order:

* `runtime`: options, reactor and clocks, which all planes share;
* `trust_plane`: keys, CAs and serving certificates;
* `tunnel_plane`: tunnels of agents and to nodes;
* `user_plane`: authentication and authorization of users, in one chain of filters;
* `serving_plane`: Tower's API, the chain of servers and the HTTP ports;
* `record_upkeep`: services that write to the records by themselves;
* `start_hooks`: the steps of the start, before the ports open;
* `proxy_stop`: the end of all of them, step by step.

`tower.proxy` composes them.  A plane opens and starts nothing: its `services` are started by the proxy, and
its `followers` of the records are stopped by it.
"""

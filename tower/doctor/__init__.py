"""``tower doctor``: checks of a proxy's machine and host cluster, an agent, a cluster, a user's kubeconfig.

Start with `findings`: a `Course` is a chain of checks, the first failure ends it.  The five examinations are
`proxy_machine`, `host`, `agent_machine`, `cluster` and `person`; `route` has the checks between two machines,
`network` their I/O, and `bundle` writes a file for a report.  The checks read; they change nothing, but
`cluster` issues a credential for its one request, and revokes it.  May import
`tower.controller` and below.
"""

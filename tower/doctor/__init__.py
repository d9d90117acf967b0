"""``tower doctor``: checks of a proxy's machine, an agent's machine, a cluster, and a user's kubeconfig.

Start with `findings`: a `Course` is a chain of checks, the first failure ends it.  The four examinations are
`proxy_machine`, `agent_machine`, `cluster` and `person`; `way` has the checks between two machines, `network`
their I/O, and `bundle` writes a file for a report.  The checks read; they change nothing.  May import
`tower.control` and below.
"""

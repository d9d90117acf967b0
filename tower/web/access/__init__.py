"""Access control: authentication, authorization, sessions and the audit log.

Start with `filters`, the list of filters that every request passes.  It imports `tower.web.gateway`,
`tower.web.outcome` and lower rooms.
"""

"""Access control: authentication, authorization, sessions and the audit log.

Start with `filters`, the list of filters that every request passes.  `authentication` finds the user,
`authorization` decides on the request; `audit` makes the events of the audit log, whose file and rotation are
in `tower.store`.  It imports `tower.web.gateway`, `tower.web.outcome` and lower rooms.
"""

"""Who may do what at the front door: authentication, admission, sessions, the audit of requests.

Start with `tower.web.access.filters`, the list of filters that every request passes.
"""

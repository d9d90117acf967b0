"""The front door's pages for ``tower login``: its configuration, sessions, and a user's clusters.

Start with `login_pages`.  They are outside of Tower's API, where administrators find the sessions
(`sessions_api`).
"""

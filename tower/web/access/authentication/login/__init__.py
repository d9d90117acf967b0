"""Authentication of users with a login session: by tokens that their clients sign.

Start with `method`.  `confirmer` lets the identity provider confirm each session in use, at most ten minutes
after the last time, with the refresh token in the session's record; `token_endpoint` is that request,
and `confirmation_queue` limits their number.  `revoker` revokes the refresh tokens of sessions that have
ended.  In both, the users take `turns`.
"""

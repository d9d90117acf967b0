"""Login sessions: users who logged in with an identity provider, and the keys that their clients sign with.

Start with `login_session`, the record; `login_sessions` keeps them in a store.  The private key of a session
never leaves the client, so the store has no secret of the client; a provider's refresh token is sealed.
"""

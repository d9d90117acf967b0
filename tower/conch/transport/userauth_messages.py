"""Message numbers and names of SSH authentication (RFC 4252)."""

from __future__ import annotations

MSG_USERAUTH_REQUEST = 50
NONE = b"none"
PUBLICKEY = b"publickey"
#: The service after authentication (RFC 4254).
CONNECTION = b"ssh-connection"
#: Longest user name accepted, B: cluster names are DNS labels.
LONGEST_NAME = 63
MSG_USERAUTH_FAILURE = 51
MSG_USERAUTH_SUCCESS = 52
MSG_USERAUTH_BANNER = 53
MSG_USERAUTH_PK_OK = 60

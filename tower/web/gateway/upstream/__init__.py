"""The clusters' side of the gateway: channels into tunnels, and the errors that clusters cause.

Start with `channel_pool`, which keeps and opens channels.  `open_failures` makes the error of a channel that
was not opened, `late_servers` remembers API servers that do not answer, `member_errors` recognizes answers
about the agent's credential, and `confinement` keeps an answer's fields inside the path of its cluster.
"""

"""The policy of a member's owner: requests and streams that the agent allows to the proxy and its users.

The agent enforces it against the proxy.  Start with `owner_policy`, the rules; `policy_document` reads them,
`policy_map` follows a ConfigMap, and `owner_gate` checks requests and cuts live streams.
"""

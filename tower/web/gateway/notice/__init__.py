"""Notices to the users of upgraded connections, such as ``kubectl exec``, at a stop of the proxy.

`boundaries` follows the frames of WebSocket and SPDY, so that a notice is not sent in the middle of one;
`stop_notice` makes the frames with the reason.
"""

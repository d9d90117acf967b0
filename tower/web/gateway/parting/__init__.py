"""What a stop tells the users of upgraded connections, such as ``kubectl exec``, before it ends them.

`borders` follows the frames of WebSocket and SPDY, so that nothing is sent in the middle of one; `last_words` makes
the frames with the reason.
"""

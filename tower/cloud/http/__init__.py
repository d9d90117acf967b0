"""HTTP to clouds: bounded requests, responses, parallel work, JSON as a stream.

`tower.cloud.session` adds retries.  Start with `tower.cloud.http.exchange`.
"""

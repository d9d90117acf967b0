"""How clouds are asked: bounded exchanges, answers, paging, polling, JSON as a stream.

Start with `tower.cloud.http.exchange`.
"""

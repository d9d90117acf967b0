"""Limits of concurrent requests: fair shares of the door's seats, and caps for each user and cluster.

Start with `door_limits`, which admits each request and makes one of the `admissions`; `seat_pool` shares
the seats of one kind of requests fairly, and `caps` counts the requests in progress of each user or cluster.
"""

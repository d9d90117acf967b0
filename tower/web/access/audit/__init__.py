"""The audit log: policy, events of requests, of changed records and of changed files, and their destinations.

Start with `audit`.  An `entry` accompanies a request from the moment its user is authenticated; the policy
(`policy_file`) decides on its level, `formats` makes events of it, `destinations` take them: the log, whose
file and rotation are in `tower.store`, and the webhook (`webhook_backend`).
"""

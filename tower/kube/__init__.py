"""Kubernetes API servers: kubeconfig files, request heads and their policy, an API client, Status objects.

Start with `tower.kube.canonical_head` (as the proxy sends heads) and `tower.kube.head_policy` (as the agent
checks them).  May import `tower.trust` and below.
"""

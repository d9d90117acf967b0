"""The controller of the host cluster: keeps objects of Kubernetes in step with the clusters.

Runs in the leader of a proxy with ``--store kubernetes``.  Start with `tower.controller.work_queue`.  Wanted
objects are pure functions; one applier compares them with those of the host, and writes only differences.
May import `tower.control` and below.
"""

"""The controller of the host cluster: keeps objects of Kubernetes in step with the clusters.

Runs in the leader of a proxy with ``--store kubernetes``.  Start with `tower.controller.controller`, which
follows the host's objects and puts the names of changed clusters into the work queue;
`tower.controller.reconciler` compares one cluster's objects with the wanted ones (`tower.controller.objects`)
and writes only differences.  `tower.controller.leader` elects the leader.  May import `tower.control` and
below.
"""

"""Clusters as KubeSphere's ``Cluster`` objects in a host cluster.

Start with `tower.clusters.host.host_object`.  The store in the host cluster is `tower.store.kubernetes`.
"""

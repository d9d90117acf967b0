"""Objects of a cluster in the host, as pure functions of its desired state: sans-IO.

Start with `tower.controller.objects.host_cluster`, the view of a ``Cluster`` object.  The others return the
wanted Service, Secret and conditions, and the difference between a wanted and a current object.
"""

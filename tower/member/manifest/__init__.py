"""The Kubernetes objects that run Tower's agent in a member cluster, as one manifest.

`settings` has the values of one manifest, `rights` and `workload` return its objects, `manifest` puts them
together, and `text` writes objects as YAML.  No I/O: the ``tower`` command and the front door both use it.
May import `tower.member.targets`, `tower.tunnels` and below.
"""

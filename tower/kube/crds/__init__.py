"""Tower's CRDs in the host cluster.

`manifests` has their files, and `installer` creates and updates them.  The CRD of Cluster objects may be
KubeSphere's, which is never changed.
"""

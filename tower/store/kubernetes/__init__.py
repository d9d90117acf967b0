"""Records as objects of a host cluster.

Start with `tower.store.kubernetes.store` (`KubernetesStore`).  `object_codec` converts records to objects and
back, `host_cache` follows the host's objects, `host_writer` writes one change, `transaction_log` makes
several changes atomic by a write-ahead object, `committer` commits them and finishes interrupted ones.
"""

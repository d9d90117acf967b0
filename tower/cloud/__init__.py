"""Cloud providers: they list a cluster's instances and install SSH keys on them.

Providers: ``aws``, ``azure``, ``gce``, ``openstack`` and, for tests, `tower.cloud.fake`.  Shared:
`tower.cloud.config` (files), `tower.cloud.http` and `tower.cloud.session` (requests), `tower.cloud.token`,
`tower.cloud.provider`.  Public, see docs/cloud-providers.md: `tower.cloud.interfaces`, where to start,
`tower.cloud.registry`, `tower.cloud.errors`, `tower.cloud.session`, `tower.cloud.token`, `tower.cloud.fake`
and `tower.cloud.gcfg`.  May import rooms below, down from `tower.tunnels`.
"""

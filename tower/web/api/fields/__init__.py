"""Field management and patches of objects: field sets, server-side apply, managed fields, JSON patch.

The rules are those of Kubernetes' structured-merge-diff.  Start with `managers`, which computes the result
of a write and the owners of its fields; `sets` are field sets, `schema` walks objects along their OpenAPI
schema, which is in `kinds`.  Sans-IO.  Imports `tower.clusters` and lower rooms.
"""

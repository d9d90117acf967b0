"""Rotation of the proxy's keys and CAs, with an overlap in which old and new ones work.

Start with `tower.rotation.rotations` (public: `Rotations`).  Each target of a rotation has a `Procedure`:
`host_key`, `serving_ca`, `users_ca`, `secrets_key`.  `announcer` announces next keys to live agents.  May
import `tower.v2`, `tower.clusters`, `tower.trust` and lower rooms.
"""

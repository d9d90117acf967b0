"""Authentication by ID tokens of OpenID Connect providers, with kube-apiserver's options and semantics.

Start with `method`, which finds the issuer of a token.  `issuer` has the settings of one issuer, from the
options ``--oidc-*`` or from a file (`configuration`); `provider` gets its
keys; `key_set` verifies signatures; `claims` checks the claims, and `claimed_user` makes the user of them.
PyJWT reads keys and verifies signatures; the order of the checks and the texts are kube-apiserver's.
"""

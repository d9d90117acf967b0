"""The user's side of logins: ``tower login``, ``tower logout``, and the credential plugin of kubeconfigs.

Start with `commands`.  `identity_provider` gets tokens, by `browser` or by device code; `door` is the proxy's
side; `login_file` keeps a session of this machine; `contexts` writes kubeconfigs; `plugin` is what kubectl
runs; `own_clusters` lists a user's clusters.
"""

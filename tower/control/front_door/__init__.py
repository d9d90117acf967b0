"""Options of the front door with kube-apiserver's names, and what they configure: users' methods, TLS.

Start with `user_authentication` and `named_serving`.
"""

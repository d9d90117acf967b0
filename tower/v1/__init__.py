"""``kubesphere-v1``: the agent protocol of KubeSphere Tower (Go), spoken to old agents and to old proxies."""

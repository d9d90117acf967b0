"""A small Kubernetes client: kubeconfig files now; list, watch and lease when the CRD store comes."""

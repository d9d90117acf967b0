"""kube-apiserver's own tests of its tunneler, and its bugs by their numbers."""

"""A real Kubernetes on this machine, without Docker: an API server in seconds and, for root, a node that runs pods."""

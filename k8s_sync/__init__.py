"""The Kubernetes side: custom resources become proxies, and their status is written back."""

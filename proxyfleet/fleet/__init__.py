"""The core: what proxies are wanted, what they are, and the reconciler between the two."""

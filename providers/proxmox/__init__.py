"""The ``proxmox`` driver: full clones of a template on a Proxmox VE cluster, over its REST API with an API token.

docs/proxmox-provider.md is for operators, docs/decisions/0013 says why it is built so.
"""

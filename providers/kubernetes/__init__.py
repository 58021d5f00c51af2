"""Squid pods of a Kubernetes cluster: proxies that need no cloud account and leave through the cluster's own addresses.

An instance is one pod and nothing else, so a crash between two API calls leaves nothing half-made.

- The pod's name is the instance's, so a create that is repeated meets the pod that the first try made. Fleet, entry,
  proxy and hash are labels and annotations of the create call; an object is ours only if they say so.
- Squid's configuration is an annotation that the kubelet shows to the container as a file: no ConfigMap to lose, no
  shell in the image to rely on.
- Pods run as Pod Security's ``restricted`` level demands, on a read-only root file system and without an account of the
  API server. docs/kubernetes-provider.md tells what was checked against which image.
- A delete names the uid of the pod that was looked at: a pod that took its name meanwhile is not touched.
"""

"""Instances of Google Compute Engine. docs/gcp-provider.md tells how to set it up, and what each failure means.

Submit and return: ``create`` inserts, ``delete`` asks, ``get`` tells. What makes that safe to repeat, at any moment and
from any number of workers:

- An instance's name comes from its identity, and a name is unique in its zone: two can never be made of one.
- A providerID ends in the number that Compute Engine gave this very instance; one that bears its name later is not it.
- The same request carries the same request id, so a repeated insert is answered with the operation of the first. A
  refusal that came late (no capacity, no quota) is read from there.
"""

"""Leases, cooldowns, reports, targets and API tokens. What the product writes, nobody edits."""

from leasing.admin import cooldowns, leases, reports, tokens

__all__ = ["cooldowns", "leases", "reports", "tokens"]

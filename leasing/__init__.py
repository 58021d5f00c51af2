"""Who may use which proxy, until when: leases, cooldowns, reports and the API for crawlers."""

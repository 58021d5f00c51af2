"""What leases cost over HTTP, as ratios of things measured in turn on the same machine: ``make bench``."""

"""Are the proxies usable? Probes, verdicts and the schedule of both."""

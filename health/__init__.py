"""Is a proxy usable? Probes through it, the verdict on their results, and the schedule of both."""

"""What an operator sees of the running product: metrics, traces, and what keeps secrets out of both and of the log."""

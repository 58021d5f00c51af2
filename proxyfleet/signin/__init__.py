"""Signing in to the admin, not more often than a person would need to try."""

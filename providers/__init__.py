"""Compute backends that make proxy instances: plain Python, no Django, no Celery."""

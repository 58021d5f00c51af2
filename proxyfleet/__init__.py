"""The project package: settings, the Celery app, and the core app `fleet`."""

"""The project itself as an app, so that it can join its parts when Django starts."""

from django.apps import AppConfig


class ProxyfleetConfig(AppConfig):
    name = "proxyfleet"
    label = "proxyfleet"

    def ready(self) -> None:
        # Both import models, which can't be done before this point.
        from proxyfleet import celery, composition

        celery.app.set_default()
        composition.join_parts()

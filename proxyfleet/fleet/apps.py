from django.apps import AppConfig
from django.db.models.signals import post_migrate


class FleetConfig(AppConfig):
    name = "proxyfleet.fleet"
    label = "fleet"
    verbose_name = "Fleet"

    def ready(self) -> None:
        # Imports models, which can't be done before this point.
        from proxyfleet.fleet.roles import grant_fleet

        post_migrate.connect(grant_fleet, sender=self)

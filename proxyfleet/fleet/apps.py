from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "proxyfleet.fleet"
    label = "fleet"
    verbose_name = "Fleet"

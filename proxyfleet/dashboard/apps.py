from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "proxyfleet.dashboard"
    label = "dashboard"
    verbose_name = "Dashboard"

from django.apps import AppConfig


class LeasingConfig(AppConfig):
    name = "leasing"
    verbose_name = "Leasing"

    def ready(self) -> None:
        # drf-spectacular finds extensions once they are imported.
        from leasing.api import openapi  # noqa: F401

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LeasingConfig(AppConfig):
    name = "leasing"
    verbose_name = "Leasing"

    def ready(self) -> None:
        # Both import models, which can't be done before this point; drf-spectacular finds extensions once imported.
        from leasing.api import openapi  # noqa: F401
        from leasing.roles import grant_leasing

        post_migrate.connect(grant_leasing, sender=self)

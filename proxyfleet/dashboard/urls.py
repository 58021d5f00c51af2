"""Beside the pages of Django's admin, and as guarded."""

from django.contrib import admin
from django.urls import path

from proxyfleet.dashboard import views

app_name = "dashboard"
urlpatterns = [
    path("parts/", admin.site.admin_view(views.parts), name="parts"),
    path("queues/", admin.site.admin_view(views.queues), name="queues"),
]

"""Where the calls of the API are, below ``/v1/``."""

from django.urls import path, re_path

from leasing.api import views

urlpatterns = [
    path("whoami", views.WhoAmI.as_view()),
    re_path("", views.Nowhere.as_view()),
]

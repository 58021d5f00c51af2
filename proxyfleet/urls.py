"""Where everything is served: the admin, the API and the checks of an orchestrator."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from leasing.api import problems
from proxyfleet.fleet import views
from proxyfleet.signin.views import sign_in

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/login/", sign_in),
    path("admin/dashboard/", include("proxyfleet.dashboard.urls")),
    path("admin/", admin.site.urls),
    path("v1/", include("leasing.api.urls")),
    path("healthz", views.healthz),
    path("readyz", views.readyz),
]

handler400 = problems.bad_request
handler500 = problems.server_error

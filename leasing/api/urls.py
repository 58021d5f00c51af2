"""Where the calls of the API are, below ``/v1/``."""

from django.urls import path, re_path

from leasing.api.views import leases, proxies, public, targets

urlpatterns = [
    path("proxies", proxies.Proxies.as_view()),
    path("proxies/<str:namespace>/<str:name>", proxies.ProxyView.as_view()),
    path("leases", leases.Leases.as_view()),
    path("leases/<str:lease_id>", leases.LeaseView.as_view()),
    path("leases/<str:lease_id>/renew", leases.Renew.as_view()),
    path("leases/<str:lease_id>/report", leases.Report.as_view()),
    path("targets", targets.Targets.as_view()),
    path("whoami", public.WhoAmI.as_view()),
    path("schema", public.Schema.as_view(), name="schema"),
    path("docs", public.Docs.as_view(url_name="schema"), name="docs"),
    re_path("", public.Nowhere.as_view()),
]

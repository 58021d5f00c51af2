from django.urls import path

from bench.noop import NoOp
from proxyfleet.urls import handler400, handler500
from proxyfleet.urls import urlpatterns as product

__all__ = ["handler400", "handler500", "urlpatterns"]

urlpatterns = [path("noop", NoOp.as_view()), *product]

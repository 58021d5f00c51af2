from django.urls import path

from bench.noop import NoOp
from proxyfleet.urls import *  # noqa: F403  its handlers too
from proxyfleet.urls import urlpatterns as product

urlpatterns = [path("v1/noop", NoOp.as_view()), *product]

"""The least that a view of Django REST framework does: read JSON, answer JSON. What a lease is compared with."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class NoOp(APIView):
    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        return Response({"fields": len(request.data)}, status=201)

    def delete(self, _request: Request) -> Response:
        return Response(status=204)

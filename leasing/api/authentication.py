"""Who calls, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated

from leasing import access
from leasing.tokens import ALL_SCOPES, Scope


@dataclass(frozen=True, slots=True)
class Caller:
    """The bearer of a token, or anyone at all where no token was ever made."""

    name: str
    scopes: frozenset[Scope]
    requests_per_second: int | None = None


ANYONE = Caller(name="", scopes=ALL_SCOPES)


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``."""

    def authenticate(self, request: HttpRequest) -> tuple[Caller, None]:
        """Raises AuthenticationFailed and NotAuthenticated."""
        words = request.META.get("HTTP_AUTHORIZATION", "").split()
        if not words:
            if access.is_open():
                return ANYONE, None
            raise NotAuthenticated
        if words[0].lower() != "bearer" or len(words) != 2:
            raise AuthenticationFailed("Use the header 'Authorization: Bearer <token>'.")
        token = access.tokens.find(words[1], timezone.now())
        if token is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.")
        return Caller(token.name, token.scopes, token.requests_per_second), None

"""Who calls, and what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from leasing import access
from leasing.tokens import ALL_SCOPES, Scope

if TYPE_CHECKING:  # the framework imports this module while it makes its views
    from rest_framework.views import APIView


@dataclass(frozen=True, slots=True)
class Caller:
    """The bearer of a token, or anyone at all where no token was ever made."""

    name: str
    scopes: frozenset[Scope]
    is_authenticated = True


ANYONE = Caller(name="", scopes=ALL_SCOPES)


def caller(request: Request) -> Caller:
    """Who sent a request that was let in."""
    found: object = request.user
    assert isinstance(found, Caller)
    return found


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        words = get_authorization_header(request).split()
        if not words:
            return (ANYONE, None) if access.is_open() else None
        if words[0].lower() != b"bearer" or len(words) != 2:
            raise AuthenticationFailed("Use the header 'Authorization: Bearer <token>'.")
        token = access.find_token(words[1].decode("latin-1"), timezone.now())
        if token is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.")
        return Caller(token.name, frozenset(Scope(scope) for scope in token.scopes)), None

    def authenticate_header(self, _request: Request) -> str:
        return 'Bearer realm="proxyfleet"'


class HasScope(BasePermission):
    """The token has the scope that the view names for this method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scopes: Mapping[str, Scope] = getattr(view, "scopes", {})
        needed = scopes.get("GET" if request.method == "HEAD" else request.method or "")
        who: object = request.user
        if not isinstance(who, Caller):
            return False
        if needed is None:
            # A method without a scope is one that the view doesn't have: let the framework say so.
            return True
        self.message = f"The token lacks the scope '{needed}'."
        return needed in who.scopes

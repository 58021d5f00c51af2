"""A service account whose keys are made here: Application Default Credentials that no Google has to know."""

from __future__ import annotations

import json
from functools import cache
from typing import ClassVar
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.auth import exceptions, jwt

from providers.gcp.tests.standin.answers import Refused

AUDIENCE = "https://compute.googleapis.com/"


class ServiceAccount:
    """Knows which of its keys hold, and checks the tokens that are signed with them."""

    email: ClassVar[str] = "proxyfleet@test-project.iam.gserviceaccount.com"

    def __init__(self) -> None:
        self._public_keys: dict[str, str] = {}

    def new_key(self) -> str:
        """What a new key file holds, as `gcloud iam service-accounts keys create` writes it."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        key_id = uuid4().hex
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._public_keys[key_id] = public.decode()
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "test-project",
                "private_key_id": key_id,
                "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
                "client_email": self.email,
                "client_id": "1",
                "token_uri": "http://127.0.0.1:9/never-asked",
            }
        )

    def revoke_all(self) -> None:
        """Keys that are made from now on hold."""
        self._public_keys = {}

    def check(self, header: str | None) -> None:
        """Raises Refused without a token for this API that has not expired and is signed with a key that holds."""
        scheme, _, token = (header or "").partition(" ")
        try:
            claims = jwt.decode(  # type: ignore[no-untyped-call]  # google-auth types it not
                token, certs=self._public_keys, audience=AUDIENCE
            )
        except (ValueError, exceptions.GoogleAuthError):
            claims = {}
        if scheme != "Bearer" or claims.get("iss") != self.email or claims.get("sub") != self.email:
            message = "Request had invalid authentication credentials. Expected OAuth 2 access token."
            raise Refused(401, "authError", message)


@cache
def shared_account() -> tuple[ServiceAccount, str]:
    """One account and a key of it for all tests that don't touch either: making a key takes its time."""
    account = ServiceAccount()
    return account, account.new_key()

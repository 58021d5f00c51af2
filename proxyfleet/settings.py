"""Django's settings, derived from the one table in conf.py."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import dj_database_url
from django.templatetags.static import static

from proxyfleet import conf

try:
    SETTINGS = conf.settings()
except conf.ImproperEnvironment as error:
    sys.exit(f"proxyfleet can't start:\n{error}")

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = SETTINGS.secret_key.get_secret_value()
DEBUG = False
ALLOWED_HOSTS = list(SETTINGS.allowed_hosts)

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "proxyfleet.apps.ProxyfleetConfig",
    "proxyfleet.fleet",
    "health",
    "leasing",
    "k8s_sync",
    "proxyfleet.dashboard",
    "proxyfleet.signin",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "proxyfleet.urls"
WSGI_APPLICATION = "proxyfleet.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": dj_database_url.parse(
        SETTINGS.database_url.get_secret_value(),
        engine="proxyfleet.postgres",
        conn_max_age=600,
        conn_health_checks=True,
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "admin:login"
# Where the form at /admin/login/ leads: of itself it says nothing.
LOGIN_REDIRECT_URL = "admin:index"

SECURE_SSL_REDIRECT = SETTINGS.https
SECURE_HSTS_SECONDS = 31_536_000 if SETTINGS.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SETTINGS.https
SECURE_HSTS_PRELOAD = SETTINGS.https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SETTINGS.https else None
# Health checks, metrics and crawlers inside the cluster talk plain HTTP to the pod itself.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^v1/"]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SETTINGS.https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"

LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = ["proxyfleet.formats"]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
# Served from where the packages keep them: no build step, no collectstatic to forget.
WHITENOISE_USE_FINDERS = True

REST_FRAMEWORK = {
    # The views of the API ask for tokens and scopes themselves.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "leasing.api.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    # The header Accept alone chooses; else `format` would be a parameter of every call.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "proxyfleet",
    "DESCRIPTION": "Lease a proxy that works for your target, report how it went, release it.",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

UNFOLD = {
    "SITE_TITLE": "proxyfleet",
    "SITE_HEADER": "proxyfleet",
    "SITE_SYMBOL": "lan",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("fleet/favicon.svg")},
    ],
    "STYLES": [lambda _request: static("fleet/admin.css")],
    "SCRIPTS": [lambda _request: static("fleet/admin.js")],
    "SIDEBAR": {"navigation": "proxyfleet.navigation.sidebar"},
    "LOGIN": {"form": "proxyfleet.signin.forms.ThrottledForm"},
    "DASHBOARD_CALLBACK": "proxyfleet.dashboard.views.index",
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"ours": {"()": "proxyfleet.logs.formatter", "kind": SETTINGS.log_format}},
    "filters": {"broker outage": {"()": "proxyfleet.logs.BrokerOutage"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "ours"}},
    "root": {"handlers": ["console"], "level": SETTINGS.log_level},
    # A line for each message of the schedule would bury all others.
    "loggers": {
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING", "filters": ["broker outage"]},
        # The web server's own, whose levels are its options; its first process writes a few lines of its own style.
        "_granian": {"handlers": ["console"], "propagate": False},
        "granian.access": {"handlers": ["console"], "propagate": False},
        # A refusal is an answer, and not the product's trouble.
        "django.request": {"level": "ERROR"},
    },
}
# What Python warns of is a line like any other.
logging.captureWarnings(capture=True)

from django.apps import AppConfig


class SignInConfig(AppConfig):
    name = "proxyfleet.signin"
    label = "signin"
    verbose_name = "Sign-in"

from django.apps import AppConfig


class KubernetesSyncConfig(AppConfig):
    name = "k8s_sync"
    verbose_name = "Kubernetes"

"""Who we are at the API server: the official client reads kubeconfig, exec plugins and service accounts, and renews
tokens; the requests themselves are ours."""
from __future__ import annotations

import os
import ssl
from typing import Any

from slurmbridge.cluster.kubernetes.settings import KubernetesSettings


class CredentialError(RuntimeError):
    """No way to the API server. ``str()`` is one line."""


class Credentials:
    """``host`` is the API server's address. Raises CredentialError."""

    def __init__(self, settings: KubernetesSettings) -> None:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
        self._configuration: Any = client.Configuration()
        try:
            if settings.kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=self._configuration)
            else:
                path = str(settings.kubeconfig) if settings.kubeconfig else None
                config.load_kube_config(path, settings.context, client_configuration=self._configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise CredentialError(f"Kubernetes: {' '.join(str(error).split())}") from None
        self.host = str(self._configuration.host).rstrip("/")

    def headers(self) -> dict[str, str]:
        """Renewed where they have run out: may start an exec plugin, so not on the event loop."""
        token = self._configuration.get_api_key_with_prefix("authorization")
        if token:
            return {"Authorization": token}
        basic = self._configuration.get_basic_auth_token()
        return {"Authorization": basic} if self._configuration.username and basic else {}

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Raises CredentialError."""
        given = self._configuration
        if not self.host.startswith("https"):
            return True
        try:
            context = ssl.create_default_context(cafile=given.ssl_ca_cert)
            if given.cert_file:
                context.load_cert_chain(given.cert_file, given.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialError(f"Kubernetes: certificate {given.ssl_ca_cert or given.cert_file}: {error}") from None
        if not given.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

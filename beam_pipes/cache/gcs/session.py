"""The client of this process: credentials that are found quickly or not at all, and connections for many threads."""

from __future__ import annotations

import functools
import os
import urllib.request
from typing import Any

from beam_pipes.cache.gcs.options import GcsOptions
from beam_pipes.errors import StorageError
from beam_pipes.extras import require

EMULATOR = "STORAGE_EMULATOR_HOST"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"

# Google's own look-up asks a machine that is not there for 25 seconds. On its machines the answer takes a millisecond.
METADATA_SECS = 1.0


class Session:
    """A `google.cloud.storage.Client` and the HTTP session it speaks through. Thread-safe; not for a forked child."""

    def __init__(self, options: GcsOptions) -> None:
        storage = require("google.cloud.storage", purpose="gs:// paths")
        from google.auth.transport.requests import AuthorizedSession
        from requests.adapters import HTTPAdapter

        self.emulator = os.environ.get(EMULATOR)
        self.credentials, project = _credentials(anonymous=options.anonymous or bool(self.emulator))
        authorized: Any = AuthorizedSession
        self.http: Any = authorized(self.credentials)
        for scheme in ("http://", "https://"):
            self.http.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=2 * options.num_threads))
        self.client = storage.Client(project=project or "<none>", credentials=self.credentials, _http=self.http)
        self.timeout = (min(10.0, options.attempt_timeout_secs), options.attempt_timeout_secs)

    @property
    def endpoint(self) -> str:
        """`https://storage.googleapis.com`, or the emulator."""
        return str(self.client.api_endpoint).rstrip("/")

    @property
    def who(self) -> str:
        """Whom the service takes us for, in words."""
        if self.emulator or type(self.credentials).__name__ == "AnonymousCredentials":
            return "an anonymous caller"
        return getattr(self.credentials, "service_account_email", None) or "the account of these credentials"


def session_for(options: GcsOptions) -> Session:
    """The session of this process; a forked child gets one of its own, because connections cannot be shared."""
    return _session(options, os.getpid(), os.environ.get(EMULATOR))


@functools.lru_cache(maxsize=8)
def _session(options: GcsOptions, pid: int, emulator: str | None) -> Session:
    return Session(options)


def _credentials(*, anonymous: bool) -> tuple[Any, str | None]:
    """(credentials, project). Raises `StorageError` where there are none, within a second or so."""
    import google.auth
    from google.auth import _cloud_sdk, environment_vars
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError

    if anonymous:
        return AnonymousCredentials(), None  # type: ignore[no-untyped-call]
    file = os.environ.get(environment_vars.CREDENTIALS)
    login: Any = _cloud_sdk.get_application_default_credentials_path
    try:
        if file or os.path.isfile(login()) or _on_google_cloud():
            found, project = google.auth.default(scopes=[SCOPE])
            return found, project
    except DefaultCredentialsError as error:
        raise StorageError(
            f"the credentials for gs:// paths cannot be used: {error}. Name a key file in "
            f"{environment_vars.CREDENTIALS}, or run: gcloud auth application-default login"
        ) from error
    raise StorageError(
        "there are no credentials for gs:// paths on this machine. Run: gcloud auth application-default login; or name "
        f"a key file in {environment_vars.CREDENTIALS}; or, for public buckets, set BEAM_PIPES_GCS_ANONYMOUS=1."
    )


def _on_google_cloud() -> bool:
    """Whether a metadata server of Google's gives this machine credentials."""
    if os.environ.get("NO_GCE_CHECK", "").lower() == "true":
        return False
    host = os.environ.get("GCE_METADATA_HOST", "169.254.169.254")
    request = urllib.request.Request(f"http://{host}/", headers={"Metadata-Flavor": "Google"})
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=METADATA_SECS) as response:
            return bool(response.headers.get("Metadata-Flavor") == "Google")
    except OSError:
        return False

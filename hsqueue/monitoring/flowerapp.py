"""The Celery application that Flower watches; it knows the queue's Redis and no task."""

from __future__ import annotations

from hsqueue.contracts.errors import UsageError
from hsqueue.queue.app import make_app
from hsqueue.settings import load_settings

_settings = load_settings()
if _settings.redis_url is None:
    raise UsageError("HSQ_REDIS_URL is not set", do="Start Flower with hsqueue flower.")
app = make_app(_settings.redis_url.get_secret_value())

"""The Celery application that Flower watches; it knows the queue's Redis and no task."""

from __future__ import annotations

from hsqueue.contracts.errors import UsageError
from hsqueue.monitoring.flower.install import install
from hsqueue.queue.app import make_app
from hsqueue.settings import load_settings

_settings = load_settings()
if _settings.redis_url is None:
    raise UsageError("HSQ_REDIS_URL is not set", do="Start Flower with hsqueue flower.")
_url = _settings.redis_url.get_secret_value()
install(_url)
app = make_app(_url)
# Flower asks in many threads at once, each of which needs two connections: a pool that is too small for all of them
# stands still for good, with no event read.
app.conf.broker_pool_limit = None

"""The Celery application that Flower watches; it knows the queue's Redis and no task."""

from __future__ import annotations

from flower.views.monitor import Metrics
from tornado.web import authenticated

from hsqueue.contracts.errors import UsageError
from hsqueue.queue.app import make_app
from hsqueue.settings import load_settings

_settings = load_settings()
if _settings.redis_url is None:
    raise UsageError("HSQ_REDIS_URL is not set", do="Start Flower with hsqueue flower.")
# The only page with figures that Flower itself leaves open; Prometheus can say a password.
Metrics.get = authenticated(Metrics.get)
app = make_app(_settings.redis_url.get_secret_value())
# Flower asks in many threads at once, each of which needs two connections: a pool that is too small for all of them
# stands still for good, with no event read.
app.conf.broker_pool_limit = None

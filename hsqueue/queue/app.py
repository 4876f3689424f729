"""The Celery application, configured so that messages survive what was seen to lose them.

Messages are hints all the same: the ledger's leases decide who works, and the reaper sends again what was lost.
"""

from __future__ import annotations

from celery import Celery

from hsqueue.contracts.message import TASK_NAME
from hsqueue.ledger.address import parse_redis_url
from hsqueue.queue.transport import install_transport

BROKER_PREFIX = "hsq:broker:"


def make_app(redis_url: str) -> Celery:
    """The application for the Redis at `redis_url`; workers and producers use the same. Raises UsageError."""
    address = parse_redis_url(redis_url)
    install_transport()
    app = Celery("hsqueue", broker=address.url)
    app.conf.update(
        # The ledger holds results; a result backend would hold them twice and lose them with Redis.
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        # Without this Celery would talk to rediss:// in the clear.
        broker_use_ssl=dict(address.tls) if address.tls else None,
        # Acknowledged after the work; attempts are counted at the lease, since Celery's own count stays at 0
        # for a task that kills its child.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=True,
        worker_pool="prefork",
        worker_prefetch_multiplier=1,
        worker_max_tasks_per_child=200,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_soft_shutdown_timeout=30.0,
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_direct=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=4,
        broker_transport_options={
            "visibility_timeout": 86400,
            "unacked_restore_interval": 30,
            "unacked_restore_throttle": 1,
            # Without a timeout a half-open connection hangs a worker for good.
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 5,
            "global_keyprefix": BROKER_PREFIX,
            "client_name": "hsqueue",
        },
        task_routes={TASK_NAME: {"exchange": ""}},
        task_create_missing_queues=True,
    )
    return app


def queue_key(queue: str) -> str:
    """The Redis list that holds the waiting messages of `queue`."""
    return f"{BROKER_PREFIX}{queue}"

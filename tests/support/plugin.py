"""What the plugin in SGLang's process is told."""

PLUGIN = {
    "HSQ_LAYERS": "layers",
    "HSQ_NORM": "norm",
    "HSQ_CAPTURE": "capture",
    "HSQ_WRITERS": "writers",
    "HSQ_DUMP_PENDING_BYTES": "pending_bytes",
    "HSQ_DUMP_LIMIT": "limit",
    "HSQ_DUMP_WAIT": "wait",
    "HSQ_DUMP_TTL": "ttl",
}
"""Its variables, but for HSQ_DUMP_DIR, and the names of the settings that they make."""

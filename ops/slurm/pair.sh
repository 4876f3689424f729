#!/bin/bash
# One task of hsqueue.sbatch: an SGLang and its worker on the GPU that Slurm gave to this task.
set -u

gpu=${SLURM_LOCALID:?this is started by hsqueue.sbatch}
# Other jobs may be on this node, each with ports of its own.
url=http://127.0.0.1:$((30000 + SLURM_JOB_ID % 250 * 10 + gpu))
# The engine and its worker share this directory, and nobody else uses it.
export HSQ_DUMP_DIR=/dev/shm/hsqueue-$SLURM_JOB_ID-$gpu
# Celery then takes SIGTERM for a soft shutdown: it gives its shards back, within 30 seconds.
export REMAP_SIGTERM=SIGQUIT
# A job that was requeued may find what it left here the last time.
rm -rf "$HSQ_DUMP_DIR"
mkdir -m 0700 "$HSQ_DUMP_DIR" || exit

# Slurm restarts nothing, so an engine that went down is started again here; its worker waits for it meanwhile.
serve() {
  trap 'kill $!; wait; exit' TERM
  while :; do
    # shellcheck disable=SC2086  # SGLANG_ARGS is a list of words
    python3 -m sglang.launch_server --model-path "$HSQ_MODEL" --host 127.0.0.1 --port "${url##*:}" ${SGLANG_ARGS:-} &
    wait $!
    echo "the engine at $url ended with status $?; it is started again"
    sleep 5 &
    wait $!
  done
}
serve &
engine=$!
hsqueue worker --engine "$url" --dump-dir "$HSQ_DUMP_DIR" --name "gpu$gpu" &
worker=$!

finish() {
  kill "$worker" 2>/dev/null
  wait "$worker"
  status=$?
  kill "$engine"
  wait "$engine"
  rm -rf "$HSQ_DUMP_DIR"
  exit "$status"
}
trap finish EXIT
trap exit TERM

while kill -0 "$worker" 2>/dev/null && [ ! -e "$HSQ_STOP_FILE" ]; do
  sleep 2
done

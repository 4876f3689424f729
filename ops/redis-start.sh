#!/bin/sh
# Starts Redis with redis.conf and a password, which reaches neither a file nor the list of processes.
#
#   HSQ_REDIS_PASSWORD=... redis-start.sh /path/to/redis.conf [--OPTION VALUE ...]
#
# HSQ_REDIS_ACLFILE  a file of users instead of the one password; redis-users.acl is an example
# REDIS_SERVER       the program to start, redis-server unless said otherwise; valkey-server works too
set -eu

conf=${1:?say where redis.conf is}
shift

if [ -n "${HSQ_REDIS_ACLFILE:-}" ]; then
  login="aclfile $HSQ_REDIS_ACLFILE"
else
  # The password also stands in HSQ_REDIS_URL, where other characters would have to be encoded.
  case ${HSQ_REDIS_PASSWORD:?say the password of Redis} in
    *[!A-Za-z0-9_-]*)
      echo "HSQ_REDIS_PASSWORD may hold letters, digits, - and _ only. Make one with: openssl rand -hex 24" >&2
      exit 2
      ;;
  esac
  login="requirepass $HSQ_REDIS_PASSWORD"
fi
unset HSQ_REDIS_PASSWORD

# The final "-" tells Redis to read the rest of its configuration from standard input.
exec "${REDIS_SERVER:-redis-server}" "$conf" "$@" - <<END
$login
END

-- Lists the shards that count as queued, in one string: there may be all of a large run.
-- KEYS: 1 queued
-- Returns: their numbers with spaces between
return table.concat(redis.call('ZRANGE', KEYS[1], 0, -1), ' ')

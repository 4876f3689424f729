-- Counts the shards that have not ended, and those of them that a worker has or a message stands for.
-- KEYS: 1 ended, 2 leases, 3 queued
-- ARGV: 1 shards of the run
-- Returns: {open, leased by a live lease, queued, ms since the oldest queued one was sent or 0}
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return {
  ARGV[1] - redis.call('BITCOUNT', KEYS[1]),
  redis.call('ZCOUNT', KEYS[2], string.format('(%.0f', now), '+inf'),
  redis.call('ZCARD', KEYS[3]),
  oldest[2] and now - tonumber(oldest[2]) or 0
}

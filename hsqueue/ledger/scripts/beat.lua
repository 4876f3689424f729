-- Takes a worker's sign of life, and drops workers that were silent for long.
-- KEYS: 1 workers, 2 workers' last signs
-- ARGV: 1 worker, 2 what it says, 3 ms of silence after which a worker is dropped
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now, ARGV[1])
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', now - ARGV[3]))) do
  redis.call('HDEL', KEYS[1], worker)
  redis.call('ZREM', KEYS[2], worker)
end

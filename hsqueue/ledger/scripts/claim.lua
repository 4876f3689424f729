-- Chooses the shards whose messages the caller has to send, and notes them as queued, so that of two
-- producers only one sends each.
-- KEYS: 1 info, 2 ended, 3 leases, 4 queued, 5 sent
-- ARGV: 1 grace in ms: a shard queued longer ago than this is sent again (-1: never), then candidate shards
-- Returns: the shards to send, a subset of the candidates
local claimed = {}
if redis.call('EXISTS', KEYS[1]) == 0 then return claimed end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local grace = tonumber(ARGV[1])
for position = 2, #ARGV do
  local shard = ARGV[position]
  if redis.call('GETBIT', KEYS[2], shard) == 0 then
    local expiry = redis.call('ZSCORE', KEYS[3], shard)
    local sent = redis.call('ZSCORE', KEYS[4], shard)
    local lost = sent and grace >= 0 and now - tonumber(sent) >= grace
    if not (expiry and tonumber(expiry) > now) and (not sent or lost) then
      redis.call('ZADD', KEYS[4], now, shard)
      redis.call('SETBIT', KEYS[5], shard, 1)
      claimed[#claimed + 1] = shard
    end
  end
end
return claimed

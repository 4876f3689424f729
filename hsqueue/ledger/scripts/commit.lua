-- Records ended samples of a leased shard, each at most once however often it is told. Behind pace.lua.
-- KEYS: 1 holders, 2 done, 3 counts, 4 given_up, 5 suspects, 6 attempts, 7 pace, 8 troubled, 9 newest_failed,
--       10 newest_skipped
-- ARGV: 1 shard, 2 "<fence> <owner>", 3 done samples as a JSON array: index, tokens, index, tokens, ...;
--       then for each given-up sample: index, ending ('skipped' or 'failed'), JSON [ending, attempts, error, detail]
-- Returns: samples newly recorded, or -1 where the lease is not the caller's: then nothing was recorded
local NEWEST = 100
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return -1 end
local now = redis_ms()
local function troubled(change)
  redis.call('BITFIELD', KEYS[8], 'OVERFLOW', 'SAT', 'INCRBY', 'u32', '#' .. ARGV[1], change)
end
local done = cjson.decode(ARGV[3])
-- Without given-up samples and suspects, as in most runs, none has to be looked up for each sample.
local marked = redis.call('EXISTS', KEYS[4], KEYS[5]) > 0
local recorded, tokens = 0, 0
for position = 1, #done, 2 do
  local index = done[position]
  if redis.call('SETBIT', KEYS[2], index, 1) == 0 then
    local before = marked and redis.call('HGET', KEYS[4], index)
    if before then
      redis.call('HINCRBY', KEYS[3], cjson.decode(before)[1], -1)
      redis.call('HDEL', KEYS[4], index)
      redis.call('ZREM', KEYS[9], index)
      redis.call('ZREM', KEYS[10], index)
      troubled(-1)
    end
    recorded = recorded + 1
    tokens = tokens + done[position + 1]
    if marked then redis.call('HDEL', KEYS[5], index) end
  end
end
if recorded > 0 then
  redis.call('HINCRBY', KEYS[3], 'done', recorded)
  redis.call('HINCRBY', KEYS[3], 'tokens', string.format('%.0f', tokens))
end
local position = 4
while position <= #ARGV do
  local index = ARGV[position]
  if redis.call('GETBIT', KEYS[2], index) == 0
    and redis.call('HSETNX', KEYS[4], index, ARGV[position + 2]) == 1 then
    redis.call('HINCRBY', KEYS[3], ARGV[position + 1], 1)
    redis.call('HDEL', KEYS[5], index)
    troubled(1)
    local newest = ARGV[position + 1] == 'failed' and KEYS[9] or KEYS[10]
    redis.call('ZADD', newest, now, index)
    if redis.call('ZCARD', newest) > NEWEST then
      redis.call('ZREM', newest, redis.call('ZRANGE', newest, 0, 0)[1])
    end
    recorded = recorded + 1
  end
  position = position + 3
end
if recorded > 0 then
  -- Progress starts the count of leases anew: only leases that come to nothing add up.
  redis.call('HDEL', KEYS[6], ARGV[1])
  note_pace(KEYS[7], now, tokens)
end
return recorded

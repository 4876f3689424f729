-- Takes endings back, so that their samples are asked for again: for retry, repair and missing files.
-- KEYS: 1 done, 2 counts, 3 given_up, 4 suspects, 5 ended, 6 attempts, 7 queued, 8 troubled, 9 newest_failed,
--       10 newest_skipped, 11 sent
-- ARGV: 1 shard, then for each sample: index, tokens (as they were counted)
-- Returns: samples that are pending again
local forgotten, tokens = 0, 0
for position = 2, #ARGV, 2 do
  local index = ARGV[position]
  local before = redis.call('HGET', KEYS[3], index)
  if redis.call('SETBIT', KEYS[1], index, 0) == 1 then
    redis.call('HINCRBY', KEYS[2], 'done', -1)
    tokens = tokens - ARGV[position + 1]
    forgotten = forgotten + 1
  elseif before then
    redis.call('HINCRBY', KEYS[2], cjson.decode(before)[1], -1)
    redis.call('HDEL', KEYS[3], index)
    redis.call('BITFIELD', KEYS[8], 'OVERFLOW', 'SAT', 'INCRBY', 'u32', '#' .. ARGV[1], -1)
    redis.call('ZREM', KEYS[9], index)
    redis.call('ZREM', KEYS[10], index)
    forgotten = forgotten + 1
  end
  redis.call('HDEL', KEYS[4], index)
end
if tokens < 0 then redis.call('HINCRBY', KEYS[2], 'tokens', string.format('%.0f', tokens)) end
if forgotten > 0 then
  redis.call('SETBIT', KEYS[5], ARGV[1], 0)
  redis.call('HDEL', KEYS[6], ARGV[1])
  redis.call('ZREM', KEYS[7], ARGV[1])
  redis.call('SETBIT', KEYS[11], ARGV[1], 0)
end
return forgotten

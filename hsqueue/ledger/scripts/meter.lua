-- Adds to the counters of a run and of a worker. Not of a run that Redis does not know: they would stay for ever.
-- KEYS: 1 info, 2 meters of the run, 3 meters of the worker
-- ARGV: 1 ms that the worker's stay after the last addition, then for each counter: name, increment
-- Returns: 1, or 0 where the run is unknown
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for position = 2, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[2], ARGV[position], ARGV[position + 1])
  redis.call('HINCRBY', KEYS[3], ARGV[position], ARGV[position + 1])
end
redis.call('PEXPIRE', KEYS[3], ARGV[1])
return 1

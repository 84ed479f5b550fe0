-- Free the lock if it is mine; its token stays. 1: it was mine, 0: it was not.
--
-- KEYS: the lock, the index of held locks.  ARGV: owner
local value = redis.call('GET', KEYS[1])
if not value or string.match(value, '^([^\n]*)\n', 46) ~= ARGV[1] then
  return 0
end
local kept = string.sub(value, 1, 13)
local live = redis.call('PTTL', KEYS[1]) > tonumber(kept)
-- With the memory full nothing may be set: the token goes then, and the clock is greater.
local set = redis.pcall('SET', KEYS[1], string.sub(value, 1, 45) .. '\n\n', 'PX', kept)
if set.err then
  redis.call('DEL', KEYS[1])
end
redis.call('ZREM', KEYS[2], KEYS[1])
return live and 1 or 0

-- Start the ttl anew if the lock is mine. The token: it is, 0: it is not, -1: nobody holds it here.
--
-- KEYS: the lock.  ARGV: owner, ttl in ms
local value = redis.call('GET', KEYS[1])
if not value then
  return -1
end
local owner = string.match(value, '^([^\n]*)\n', 62)
local kept = tonumber(string.sub(value, 1, 13))
if owner == '' or redis.call('PTTL', KEYS[1]) <= kept then
  return -1
end
if owner ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], kept + ARGV[2])  -- allowed when the memory is full, too
return tonumber(string.sub(value, 14, 29))

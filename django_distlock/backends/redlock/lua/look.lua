-- Return what is left of the lease in ms, the node's clock in us and the value; nothing if free.
--
-- KEYS: the lock
local value = redis.call('GET', KEYS[1])
if not value then
  return {}
end
local left = redis.call('PTTL', KEYS[1]) - tonumber(string.sub(value, 1, 13))
if left <= 0 then
  return {}
end
local time = redis.call('TIME')
return {left, time[1] * 1000000 + time[2], value}

-- Return the next held locks of the index: where to go on (empty at the end), the node's clock in us,
-- and of each lock its key, what is left of it in ms, and its value.
--
-- KEYS: the index of held locks.  ARGV: where to go on, how many
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local time = redis.call('TIME')
local found = {'', time[1] * 1000000 + time[2]}
if #keys == tonumber(ARGV[2]) then
  found[1] = '(' .. keys[#keys]
end
for _, key in ipairs(keys) do
  local value = redis.call('GET', key)
  if value then
    local left = redis.call('PTTL', key) - tonumber(string.sub(value, 1, 13))
    if left > 0 then
      found[#found + 1] = key
      found[#found + 1] = left
      found[#found + 1] = value
    end
  end
end
return found

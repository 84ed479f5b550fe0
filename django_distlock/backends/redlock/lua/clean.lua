-- Take the entries out of the index whose lease ran out long ago, among the next ones of it.
-- Returns where to go on (empty at the end), how many were idle, and how many were seen.
--
-- KEYS: the index of held locks.  ARGV: where to go on, how many, how long ago in ms, dry run
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local next, idle = '', 0
if #keys == tonumber(ARGV[2]) then
  next = '(' .. keys[#keys]
end
for _, key in ipairs(keys) do
  local value = redis.call('GET', key)
  if not value
      or tonumber(string.sub(value, 1, 13)) - redis.call('PTTL', key) >= tonumber(ARGV[3]) then
    idle = idle + 1
    if ARGV[4] ~= '1' then
      redis.call('ZREM', KEYS[1], key)
    end
  end
end
return {next, idle, #keys}

-- Start the ttl anew of each lock that its owner holds.
--
-- KEYS: the locks.  ARGV: for each of them its owner, and the ttl in ms
--
-- Returns a word for each of them: the token if it is renewed, 0 if another holds it, -1 if nobody
-- holds it here. All in one string, which a client reads faster than as many answers.
local answers = {}
for number, key in ipairs(KEYS) do
  local owner, ttl = ARGV[2 * number - 1], ARGV[2 * number]
  local value = redis.call('GET', key)
  local kept = value and tonumber(string.sub(value, 1, 13))
  if not value or string.sub(value, 62, 62) == '\n' or redis.call('PTTL', key) <= kept then
    answers[number] = '-1'
  elseif string.sub(value, 62, 62 + #owner) == owner .. '\n' then
    redis.call('PEXPIRE', key, kept + ttl)  -- allowed when the memory is full, too
    answers[number] = string.sub(value, 14, 29)
  else
    answers[number] = '0'
  end
end
return table.concat(answers, ' ')

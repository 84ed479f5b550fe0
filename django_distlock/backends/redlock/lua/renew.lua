-- Start the ttl anew of each lock that its owner holds.
--
-- KEYS: the locks.  ARGV: for each of them its owner, the ttl in ms, and "s" and the note to share it
--
-- Returns a word for each of them: the token if it is renewed, 0 if another holds it, -1 if nobody
-- holds it here. All in one string, which a client reads faster than as many answers.

-- include shares.lua

local answers = {}
for number, key in ipairs(KEYS) do
  local owner, ttl, shared = ARGV[3 * number - 2], ARGV[3 * number - 1], ARGV[3 * number]
  local value = redis.call('GET', key)
  local kept = value and tonumber(string.sub(value, 1, 13))
  if not value or string.sub(value, 62, 62) == '\n' or redis.call('PTTL', key) <= kept then
    local now = value and micros()
    local mine = now and share_of(key, owner, now)
    if mine then
      share(key, owner, string.sub(mine, UNTIL + 1), now, ttl)
    end
    answers[number] = mine and string.sub(mine, TOKEN, TOKEN + 15) or '-1'
  elseif string.sub(value, 62, 62 + #owner) == owner .. '\n' then
    if shared == '' then
      redis.call('PEXPIRE', key, kept + ttl)  -- allowed when the memory is full, too
    else  -- held alone until now
      local name = string.match(value, '^[^\n]*\n([^\n]*)\n', 62)
      local text = string.sub(value, 1, 61) .. owner .. '\n' .. name .. '\n' .. string.sub(shared, 2)
      free(key, value, kept + ttl)
      share(key, owner, text, micros(), ttl)
    end
    answers[number] = string.sub(value, 14, 29)
  else
    answers[number] = '0'
  end
end
return table.concat(answers, ' ')

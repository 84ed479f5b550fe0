-- Grant the lock when it is free or mine already, and return its token; else for how long it is held,
-- the note, and by whom: a digest of the owner, which is a secret, or "shared".
--
-- KEYS: the lock, the index of held locks
-- ARGV: owner, how long the key lives in ms (the ttl, and as long as an idle name is kept), proposed
--   token of 16 digits, how long an idle name is kept in ms, in 13 digits, 1 if who is refused will
--   wait, name, note, attempt, "s" to share it
--
-- "<the lock>:waits" says for a second that somebody waits: each release then leaves a hint, see
-- release.lua. Noted here, in the step that refuses, it is seen by the release that follows.
--
-- The value is "<kept ms: 13 digits><token: 16><acquired us: 16><attempt: 16><owner>\n<name>\n<note>";
-- the owner is empty when it is free. Its key lives for as long as it is kept beyond the lease: what is left of
-- the lease is the key's own ttl less that.
local call = redis.call
local value = call('GET', KEYS[1])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local top = 0  -- a number, as numbers of so many digits are exact
local several = ARGV[9] == 's'
if value then
  top = tonumber(string.sub(value, 14, 29))
  local free = string.sub(value, 62, 62) == '\n'
  local left = free and 0 or call('PTTL', KEYS[1]) - tonumber(string.sub(value, 1, 13))
  if left > 0 then
    local owner, note = string.match(value, '^([^\n]*)\n[^\n]*\n(.*)$', 62)
    if owner ~= ARGV[1] then
      if ARGV[5] == '1' then
        redis.pcall('SET', KEYS[1] .. ':waits', '1', 'PX', '1000')  -- a full memory costs a hint
      end
      return {left, note, string.sub(redis.sha1hex(owner), 1, 16)}
    end
    -- For as long as this one keeps idle names: it may have another RETENTION than the first.
    call('SETRANGE', KEYS[1], 0, ARGV[4])
    call('SETRANGE', KEYS[1], 45, ARGV[8])
    call('PEXPIRE', KEYS[1], ARGV[2])
    return top
  end
  several = several or call('EXISTS', KEYS[1] .. ':shares', KEYS[1] .. ':wanted') > 0
end
-- A proposal near this node's clock lets all nodes draw the same token, so that none has to be told
-- later; one that is far off is not believed, and what was drawn before is never undercut.
local token, digits = tonumber(ARGV[3]), ARGV[3]
if token <= top or token > now + 50000 or token < now - 50000 then
  token = math.max(top + 1, now)
  digits = string.format('%016.0f', token)
end
local stamp = time[1] .. string.sub('000000' .. time[2], -6)
local text = ARGV[4] .. digits .. stamp .. ARGV[8] .. ARGV[1] .. '\n' .. ARGV[6] .. '\n' .. ARGV[7]
if not several then
  call('SET', KEYS[1], text, 'PX', ARGV[2])
  call('ZADD', KEYS[2], 0, KEYS[1])
  return token
end

-- include shares.lua

local shared, wanted = ARGV[9] == 's', KEYS[1] .. ':wanted'
local mine = share_of(KEYS[1], ARGV[1], now)
if mine then
  text = ARGV[4] .. string.sub(mine, TOKEN, ATTEMPT - 1) .. ARGV[8] .. string.sub(mine, OWNER)
  share(KEYS[1], ARGV[1], text, now, ARGV[2] - ARGV[4])
  return tonumber(string.sub(mine, TOKEN, TOKEN + 15))
end
local left, note = longest(KEYS[1], now)
local barred = left
if shared then
  barred = math.max(0, call('PTTL', wanted))
end
if barred > 0 then
  if ARGV[5] == '1' then
    redis.pcall('SET', KEYS[1] .. ':waits', '1', 'PX', '1000')
    if not shared then
      redis.pcall('SET', wanted, '1', 'PX', '1000')
    end
  end
  return {math.max(left, barred), note, 'shared'}
end
if shared then
  free(KEYS[1], text, ARGV[2])
  share(KEYS[1], ARGV[1], text, now, ARGV[2] - ARGV[4])
else
  call('DEL', wanted)
  call('SET', KEYS[1], text, 'PX', ARGV[2])
end
call('ZADD', KEYS[2], 0, KEYS[1])
return token

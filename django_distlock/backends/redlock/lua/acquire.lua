-- Grant the lock when it is free or mine already, and return its token; else for how long it is held,
-- the note, and by whom: a digest of the owner, which is a secret.
--
-- KEYS: the lock, the index of held locks
-- ARGV: owner, how long the key lives in ms (the ttl, and as long as an idle name is kept), proposed
--   token of 16 digits, how long an idle name is kept in ms, in 13 digits, 1 if who is refused will
--   wait, name, note, attempt
--
-- "<the lock>:waits" says for a second that somebody waits: each release then leaves a hint, see
-- redlock_release.lua. Noted here, in the step that refuses, it is seen by the release that follows.
--
-- The value is "<kept ms: 13 digits><token: 16><acquired us: 16><attempt: 16><owner>\n<name>\n<note>";
-- the owner is empty when it is free. Its key lives for as long as it is kept beyond the lease: what is left of
-- the lease is the key's own ttl less that.
local call = redis.call
local value = call('GET', KEYS[1])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local top = 0  -- a number, as numbers of so many digits are exact
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
end
-- A proposal near this node's clock lets all nodes draw the same token, so that none has to be told
-- later; one that is far off is not believed, and what was drawn before is never undercut.
local token, digits = tonumber(ARGV[3]), ARGV[3]
if token <= top or token > now + 50000 or token < now - 50000 then
  token = math.max(top + 1, now)
  digits = string.format('%016.0f', token)
end
local stamp = time[1] .. string.sub('000000' .. time[2], -6)
call('SET', KEYS[1], ARGV[4] .. digits .. stamp .. ARGV[8] .. ARGV[1] .. '\n' .. ARGV[6] .. '\n' .. ARGV[7],
  'PX', ARGV[2])
call('ZADD', KEYS[2], 0, KEYS[1])
return token

-- Free the lock if it is mine; its token stays. 1: it was mine, 2: and somebody waits, 0: it was not.
--
-- For those who wait one hint is left, which wakes one of them. Not by an undoing: it frees nothing
-- that anybody had. But by a node that had nothing to free, as the majority may have been others.
--
-- KEYS: the lock, the index of held locks
-- ARGV: owner, the attempt that is undone ('': whichever it was)
local waits = ARGV[2] == '' and redis.call('EXISTS', KEYS[1] .. ':waits') == 1
if waits and redis.call('LLEN', KEYS[1] .. ':hints') == 0 then
  redis.pcall('RPUSH', KEYS[1] .. ':hints', '1')  -- a full memory costs a hint
  redis.call('PEXPIRE', KEYS[1] .. ':hints', 1000)
end
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 62, 62 + #ARGV[1]) == ARGV[1] .. '\n' then
  -- Read late, after the next attempt of the same owner, it would free what that one was granted.
  if ARGV[2] ~= '' and ARGV[2] ~= string.sub(value, 46, 61) then
    return 0
  end
  local kept = tonumber(string.sub(value, 1, 13))
  local live = redis.call('PTTL', KEYS[1]) > kept
  local set = redis.pcall('SET', KEYS[1], string.sub(value, 1, 61) .. '\n\n', 'PX', kept)
  if set.err then
    if string.sub(set.err, 1, 3) ~= 'OOM' then
      return set
    end
    -- With the memory full nothing may be set: the token goes, and the clock takes its place.
    redis.call('DEL', KEYS[1])
  end
  redis.call('ZREM', KEYS[2], KEYS[1])
  return live and (waits and 2 or 1) or 0
end

-- include shares.lua

local mine = redis.call('HGET', KEYS[1] .. ':shares', ARGV[1])
if not mine or ARGV[2] ~= '' and ARGV[2] ~= string.sub(mine, ATTEMPT, OWNER - 1) then
  return 0
end
redis.call('HDEL', KEYS[1] .. ':shares', ARGV[1])
local alone = value and string.sub(value, 62, 62) ~= '\n'
if not alone and redis.call('EXISTS', KEYS[1] .. ':shares') == 0 then
  redis.call('ZREM', KEYS[2], KEYS[1])
end
return ends(mine) > micros() and (waits and 2 or 1) or 0

-- Who shares a lock: what the other scripts include, after what is done for a lock that one holds
-- alone.
--
-- The hash "<the lock>:shares" has for each owner until when, in us by this node's clock (16), and a
-- value as that of a lock, see acquire.lua. The lock itself is free then, and has the last token; it
-- lives as long as the longest share. "<the lock>:wanted" keeps further ones out for a second, as
-- somebody waits who wants it alone.
local UNTIL, TOKEN, ATTEMPT, OWNER = 16, 30, 62, 78  -- where each ends or begins

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function ends(share)
  return tonumber(string.sub(share, 1, UNTIL))
end

-- Return the share of an owner that lasts, if there is one.
local function share_of(lock, owner, now)
  local share = redis.call('HGET', lock .. ':shares', owner)
  return share and ends(share) > now and share
end

-- Return what is left in ms of the share that ends last (0 without any), and its note; and remove
-- those that ran out.
local function longest(lock, now)
  local left, note = 0, ''
  local all = redis.call('HGETALL', lock .. ':shares')
  for number = 1, #all, 2 do
    local rest = math.ceil((ends(all[number + 1]) - now) / 1000)
    if rest <= 0 then
      redis.call('HDEL', lock .. ':shares', all[number])
    elseif rest > left then
      left, note = rest, string.match(all[number + 1], '^[^\n]*\n[^\n]*\n(.*)$', OWNER)
    end
  end
  return left, note
end

local function keep(key, life)
  if redis.call('PTTL', key) < tonumber(life) then
    redis.call('PEXPIRE', key, life)
  end
end

-- Write a share, of a value that says how long an idle name is kept, so many ms from now on.
local function share(lock, owner, value, now, ttl)
  local life = string.format('%.0f', ttl + string.sub(value, 1, 13))
  redis.call('HSET', lock .. ':shares', owner, string.format('%016.0f', now + ttl * 1000) .. value)
  keep(lock .. ':shares', life)
  keep(lock, life)
end

-- Free a lock for those who share it, and have it keep a token.
local function free(lock, value, life)
  life = math.max(redis.call('PTTL', lock), tonumber(life))
  redis.call('SET', lock, string.sub(value, 1, 61) .. '\n\n', 'PX', string.format('%.0f', life))
end

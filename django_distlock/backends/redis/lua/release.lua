-- Free the name if the owner holds it, by handing it to the first who waits; withdraw its wait.
--
-- KEYS  1 the record of the name, 2 the index of its tag, 3 its queue
-- ARGV  1 owner  2 retention and 3 short grant, in ms
--
-- The first in the queue whose process lives holds the lock for a short time, in which it has to
-- claim it; its mailbox is told.
--
-- Returns 1 when the owner held it, else 0.

local call, owner = redis.call, ARGV[1]
local record = call('GET', KEYS[1])
local flag = record and string.sub(record, 1, 1)
local only = flag == '-' and string.sub(record, 27, 27 + #owner) == owner .. '\n'
if flag == '*' then
    only = string.find(record, ',[["' .. owner .. '",', 27, true)
        and not string.find(record, ',["', 27, true)
end
if only then
    -- Held by one, and nobody waits, as most are.
    local lasted = call('PTTL', KEYS[1]) - string.sub(record, 18, 26) * 1000 > 0
    if redis.pcall('SET', KEYS[1], string.sub(record, 2, 17), 'PX', ARGV[2]).err then
        call('DEL', KEYS[1])
    end
    call('SREM', KEYS[2], string.sub(KEYS[1], #KEYS[2]))
    return lasted and 1 or 0
end

-- include holders.lua

local now = micros()
local state = read(KEYS[1], record, now, owner)
call('DEL', string.sub(KEYS[2], 1, -2) .. 'a:' .. owner)
if not state then
    return 0
end
local mine, number = find(state, owner)
if mine then
    table.remove(state.all, number)
else
    call('LREM', KEYS[3], 0, owner)
end
if state.queued and (mine or state.mode ~= 'x') then
    hand_on(state, now, ARGV[3])  -- also when who wanted to be alone has given up
end
if mine or state.changed then
    state.queued = state.queued and call('EXISTS', state.queue) == 1
    write(state, now, string.format('%09d', ARGV[2] / 1000))
end
return mine and mine[UNTIL] > now and 1 or 0

-- Start the ttl anew of each name that its owner holds.
--
-- KEYS  the records, of one hash tag
-- ARGV  1 short grant in ms  then for each of them its owner, the ttl in ms, and of a share its note
--
-- Who holds a name alone, and renews it as a share, shares it from then on.
--
-- Returns 1 or 0 for each of them.

-- include holders.lua

local answers = {}
for number, key in ipairs(KEYS) do
    local record = call('GET', key)
    local owner, ttl, note = ARGV[3 * number - 1], ARGV[3 * number], ARGV[3 * number + 1]
    local flag = record and string.sub(record, 1, 1)
    local several = flag == '*' or flag == '#'
    local alone = record and not several and string.sub(record, 27, 27 + #owner) == owner .. '\n'
    answers[number] = 0
    if alone and note == '' then
        local kept = string.sub(record, 18, 26) * 1000
        if call('PTTL', key) - kept > 0 then
            call('PEXPIRE', key, ttl + kept)
            answers[number] = 1
        end
    elseif alone or several then
        local now = micros()
        local state = read(key, record, now)
        local mine = state and find(state, owner)
        if mine then
            mine[UNTIL] = now + ttl * 1000
            if note ~= '' then
                mine[NOTE] = note
            end
            if alone then
                state.mode = 's'
                hand_on(state, now, ARGV[1])
            end
            write(state, now, state.kept)
            answers[number] = 1
        end
    end
end
return answers

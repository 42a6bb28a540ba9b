-- The figures of the Mooring module for redis_exporter: start it with --script redis-module.lua. They become
-- redis_script_values{key="..."}, by the names of SESSION.STATS.
local figures = {}
local reply = redis.call('SESSION.STATS')
for i = 1, #reply, 2 do
    -- The first one is not a number: it names the request.
    if type(reply[i + 1]) == 'number' then
        figures[#figures + 1] = reply[i]
        figures[#figures + 1] = tostring(reply[i + 1])
    end
end
return figures

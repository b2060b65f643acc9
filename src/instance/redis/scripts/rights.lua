-- Runs each command of the life of a lock and of a reader. It changes nothing: no command here adds a key, and nothing is under the one that is given.
--
-- ARGV  1 that key
--
-- Returns for each command that fails its name, and why.
local KEY = ARGV[1]
local commands = {
  {'get', KEY}, {'mget', KEY}, {'set', KEY, '', 'XX'}, {'pexpire', KEY, 1}, {'pttl', KEY}, {'del', KEY},
  {'zadd', KEY, 'XX', 0, ''}, {'zscore', KEY, ''}, {'zrange', KEY, 0, 0}, {'zrem', KEY, ''},
}
local failed = {}
for _, command in ipairs(commands) do
  local said = redis.pcall(unpack(command))
  if type(said) == 'table' and said.err then
    failed[#failed + 1] = command[1]
    failed[#failed + 1] = string.sub(said.err, 1, 150)
  end
end
return failed

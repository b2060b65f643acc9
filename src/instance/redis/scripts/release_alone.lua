-- The usual case without a detour: one resource that is still held and for which nothing
-- else was sent. Else see release.lua.
if #KEYS == 1 and not ARGV[3] and redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end

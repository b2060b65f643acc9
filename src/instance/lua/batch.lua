-- Carries out several requests in the order in which they were made, and gives their replies.
--
-- KEYS  for each request its lock keys, then its fence keys
-- ARGV  1, 2 see admission.lua; then for each request: kind, number of resources, value, ttl, token, closed, retention, holder
local replies, key, arg = {}, 1, 3
while ARGV[arg] do
  local kind, count = ARGV[arg], tonumber(ARGV[arg + 1])
  local value, ttl, token = ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4]
  local closed, retention, holder = ARGV[arg + 5], ARGV[arg + 6], ARGV[arg + 7]
  if kind == 'acquire' then
    replies[#replies + 1] = acquire(key, count, value, ttl, token, retention, holder)
  elseif kind == 'extend' then
    replies[#replies + 1] = extend(key, count, value, ttl, token, closed, retention)
  else
    replies[#replies + 1] = release(key, count, value, closed, retention, kind == 'release resent')
  end
  key, arg = key + 2 * count, arg + 8
end
return replies

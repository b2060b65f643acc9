-- Marks a lease as released: an acquire of it that is still on its way over a connection that broke
-- will find its token used up, and an extend will not repair (P6, P10). The tombstone is the largest token
-- that the lease can have; a larger one of somebody else stays. (pcall: an instance that is full
-- takes no tombstone, and the release goes on.) A token that is ahead of the clock was refused here, and
-- leaves no tombstone (P12).
local function set_tombstone(fence, tombstone, retention)
  local time = redis.call('TIME')
  local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)
  if is_ahead(tombstone, now_ms) then
    return
  end
  local stored = redis.pcall('SET', fence, tombstone, 'PX', retention, 'GET')
  if type(stored) == 'string' and stored > tombstone and is_valid_token(stored, now_ms) then
    redis.call('SET', fence, stored, 'PX', retention)
  end
end

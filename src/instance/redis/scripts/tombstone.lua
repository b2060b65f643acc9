-- Marks a lease as released: an acquire of it that is still on its way over a connection that broke
-- will find its token used up, and an extend will not repair (P6, P10). The tombstone is half a microsecond above
-- the lease's token, below every other grant's; a larger token of somebody else stays. (pcall: an instance that
-- is full takes no tombstone, and the release goes on.) A token that is ahead of the clock was refused here, and
-- leaves no tombstone (P12).
local function set_tombstone(key, token)
  local time = redis.call('TIME')
  local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)
  local tombstone = token + 0.5
  if not is_ahead(tombstone, now_ms) then
    raise_token(redis.pcall, key, tombstone, now_ms)
  end
end

-- Marks a lease as released: an acquire of it that is still on its way over a connection that broke
-- will find its token used up, and an extend will not repair (P6, P10). The mark is the largest token
-- that the lease can have; a larger one of somebody else stays. (pcall: an instance that is full
-- cannot be marked, and the release goes on.)
local function mark(fence, closed, retention)
  local stored = redis.pcall('SET', fence, closed, 'PX', retention, 'GET')
  if type(stored) == 'string' and stored > closed then
    redis.call('SET', fence, stored, 'PX', retention)
  end
end

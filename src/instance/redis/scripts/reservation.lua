-- What keeps a key for the client whose value this is (P26); nil for a value that is not of this library. To
-- everybody else it is a foreign value.
local function reservation_for(value)
  local client = string.match(value, '^[^:]*:(%x%x%x%x%x%x%x%x%x%x%x%x)')
  return client and ':next:' .. client
end

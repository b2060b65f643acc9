-- Tokens that no clock can have made (P12). A token counts microseconds since 2025, which a double holds
-- exactly. 1735603200000 is one day before 2025 in ms: a token may be a day ahead of this instance's clock.
local function is_ahead(token, now_ms)
  return token / 1000 > now_ms - 1735603200000
end

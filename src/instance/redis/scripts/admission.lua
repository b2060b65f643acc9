-- Whether the record of this instance is the one that the client knows for its process (P14). Every
-- script that votes begins with this; clock.lua goes on.
--
-- ARGV  1 the record, empty if admission is off
--       2 the instant of its record, in ms; empty if admission is off, and where the client knows
--         that it has come: it looks at the clock of the grant itself (see AdmissionState::check_vote)
--
-- left  0 if it may vote, else how many ms it must still sit out, -1 if that is not known
local left = 0
if ARGV[1] ~= '' and redis.pcall('GET', 'redquorum:admission') ~= ARGV[1] then
  left = -1
end

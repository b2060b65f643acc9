-- An answer that is an error, and not because the key is no string: a command that is denied, a replica without its
-- data. It says nothing about what is stored, so the script ends with it. Else nil.
local function failure(answer)
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    return answer
  end
end

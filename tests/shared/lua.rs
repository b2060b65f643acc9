//! The library's scripts, run by the Lua that Redis has. Values are converted as Redis does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;

use mlua::{BorrowedBytes, Function, Lua, MultiValue, Result, Table, Value};
use redquorum::testing::simulation::{Answer, Called, ScriptCall};

/// What a script has of Redis. An error that it raises is its answer.
const REDIS: &str = "
local pcall, type, error, ipairs = pcall, type, error, ipairs
return function(script, KEYS, ARGV, called)
  local function call(...)
    local reply = called(...)
    if type(reply) == 'table' and reply.err then
      error(reply, 0)
    end
    return reply
  end
  local function each(list)
    local follow, _, first = ipairs(list)
    return list == KEYS and function(_, at)
      if list[at + 1] then
        called(at)
      end
      return follow(list, at)
    end or follow, list, first
  end
  local ended, reply = pcall(script, KEYS, ARGV, {call = call, pcall = called}, #KEYS > 1 and each or ipairs)
  if ended or type(reply) == 'table' then
    return reply
  end
  return {err = 'ERR ' .. reply}
end";

/// What stands before a script, in its first line.
const HEAD: &str = "local KEYS, ARGV, redis, ipairs = ... ";

/// A collection begins when there is so many percent of what the last one left.
const GC_PAUSE: c_int = 1_000;

/// One for each thread.
struct Interpreter {
    lua: Lua,
    redis: Function,
    /// By their hashes.
    scripts: RefCell<HashMap<&'static str, Function>>,
}

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().expect("an interpreter");
}

/// Runs a script, unless it only finds out which rights are missing: to be given to a server that denies none, where each connection asks.
pub(crate) fn run_with_all_rights(script: ScriptCall<'_>, called: &mut dyn FnMut(Called<'_>) -> Answer) -> Answer {
    if script.is_about_rights { Answer::List(Vec::new()) } else { run(script, called) }
}

/// Runs a script; to be given to a simulated server.
pub(crate) fn run(script: ScriptCall<'_>, called: &mut dyn FnMut(Called<'_>) -> Answer) -> Answer {
    let run = |interpreter: &Interpreter| interpreter.run(script, called);
    INTERPRETER.with(run).unwrap_or_else(|error| Answer::Error(format!("ERR {error}")))
}

impl Interpreter {
    fn new() -> Result<Self> {
        let lua = Lua::new();
        lua.gc_inc(GC_PAUSE, 0, 0); // what a script leaves is little
        let redis = lua.load(REDIS).eval()?;
        Ok(Self { lua, redis, scripts: RefCell::default() })
    }

    fn script(&self, ScriptCall { hash, text, .. }: ScriptCall<'_>) -> Result<Function> {
        if let Some(script) = self.scripts.borrow().get(hash) {
            return Ok(script.clone());
        }
        let script = self.lua.load(format!("{HEAD}{text}")).set_name("@user_script").into_function()?;
        self.scripts.borrow_mut().insert(hash, script.clone());
        Ok(script)
    }

    fn run(&self, call: ScriptCall<'_>, called: &mut dyn FnMut(Called<'_>) -> Answer) -> Result<Answer> {
        let (lua, script) = (&self.lua, self.script(call)?);
        // A text goes to Lua without a detour.
        let list = |words: &[&[u8]]| {
            let texts: Option<Vec<&str>> = words.iter().map(|word| str::from_utf8(word).ok()).collect();
            if let Some(texts) = texts {
                return lua.create_sequence_from(texts);
            }
            let strings = words.iter().map(|word| lua.create_string(word));
            lua.create_sequence_from(strings.collect::<Result<Vec<_>>>()?)
        };
        let (keys, args) = (list(call.keys)?, list(call.args)?);
        lua.scope(|scope| {
            let called = scope.create_function_mut(|lua, words: MultiValue| to_lua(lua, command(&words, called)))?;
            to_answer(&self.redis.call((script, keys, args, called))?)
        })
    }
}

/// Carries out a command of a script, or takes note of the key that it begins with.
fn command(words: &MultiValue, called: &mut dyn FnMut(Called<'_>) -> Answer) -> Answer {
    if let Some(Value::Integer(at)) = words.front() {
        return called(Called::Key(usize::try_from(*at).unwrap_or(0)));
    }
    match words.iter().map(Word::new).collect::<Option<Vec<_>>>() {
        Some(words) => called(Called::Command(&words.iter().map(Word::as_bytes).collect::<Vec<_>>())),
        None => Answer::Error("ERR Lua redis lib command arguments must be strings or integers".to_owned()),
    }
}

/// A word of a command.
enum Word<'a> {
    Text(BorrowedBytes<'a>),
    Number(String),
}

impl<'a> Word<'a> {
    fn new(value: &'a Value) -> Option<Self> {
        Some(match value {
            Value::String(text) => Self::Text(text.as_bytes()),
            Value::Integer(number) => Self::Number(number.to_string()),
            Value::Number(number) => Self::Number(number.to_string()),
            _ => return None,
        })
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.as_bytes(),
        }
    }
}

fn to_lua(lua: &Lua, answer: Answer) -> Result<Value> {
    let text = |text: Vec<u8>| lua.create_string(text).map(Value::String);
    let named = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match answer {
        Answer::Number(number) => Ok(Value::Integer(number)),
        Answer::Bytes(bytes) => text(bytes),
        Answer::Text(bytes) => text(bytes.into_bytes()),
        Answer::Nothing => Ok(Value::Boolean(false)),
        Answer::Simple(word) => named("ok", word),
        Answer::Error(words) => named("err", &words),
        Answer::List(items) => {
            let items = items.into_iter().map(|item| to_lua(lua, item)).collect::<Result<Vec<_>>>()?;
            lua.create_sequence_from(items).map(Value::Table)
        }
        Answer::Map(_) | Answer::Push(_) => Ok(Value::Nil),
    }
}

fn to_answer(value: &Value) -> Result<Answer> {
    Ok(match value {
        Value::String(text) => Answer::Bytes(text.as_bytes().to_vec()),
        Value::Integer(number) => Answer::Number(*number),
        #[expect(clippy::cast_possible_truncation, reason = "as Redis does")]
        Value::Number(number) => Answer::Number(*number as i64),
        Value::Boolean(true) => Answer::Number(1),
        Value::Table(table) => return of_table(table),
        _ => Answer::Nothing,
    })
}

/// A list ends where nil is.
fn of_table(table: &Table) -> Result<Answer> {
    if let Value::String(words) = table.raw_get("err")? {
        return Ok(Answer::Error(words.to_string_lossy()));
    }
    if let Value::String(_) = table.raw_get("ok")? {
        return Ok(Answer::Simple("OK"));
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.raw_get(at)? {
            Value::Nil => break,
            item => items.push(to_answer(&item)?),
        }
    }
    Ok(Answer::List(items))
}

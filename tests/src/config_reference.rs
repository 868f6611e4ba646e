//! The configuration reference for users, made from the configuration's own types.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::Value;

const HEAD: &str = "# Plugin configuration\n\n\
<!-- Made from the types by `make docs`; a test fails when it is not current. -->\n\n\
The filter reads one JSON object, given to Envoy as a `google.protobuf.StringValue` (a `Struct` reaches the filter as\n\
protobuf, and is refused). Nothing at all steers no cluster.\n\
Unknown fields are errors. A configuration with any mistake is refused as a whole: Envoy's log names the path of each\n\
mistake and what is allowed there, and the last good configuration stays in force.\n";

/// The reference as Markdown: a table for each object, in the order in which they nest.
pub fn render() -> Result<String> {
    let schema = warmroute_core::config::wire::schema();
    let mut text = HEAD.to_owned();
    object(&mut text, "The whole", &schema)?;
    for (title, name) in [("A pool", "Pool"), ("An endpoint", "Endpoint"), ("`request`", "Request")] {
        let definition = schema.pointer(&format!("/$defs/{name}")).with_context(|| format!("no type {name}"))?;
        object(&mut text, title, definition)?;
    }
    let strategies = schema.pointer("/$defs/Strategy/oneOf").and_then(Value::as_array).context("no strategies")?;
    text.push_str("\n## Strategies\n\n| name | meaning |\n|---|---|\n");
    for strategy in strategies {
        writeln!(text, "| `{}` | {} |", string(strategy, "const")?, prose(strategy)?)?;
    }
    Ok(text)
}

fn object(text: &mut String, title: &str, schema: &Value) -> Result<()> {
    write!(text, "\n## {title}\n\n{}\n\n", prose(schema)?)?;
    text.push_str("| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().with_context(|| format!("{title} has no fields"))? {
        let default = match &field["default"] {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let row = [type_name(field), default, allowed(field), prose(field).with_context(|| name.clone())?];
        writeln!(text, "| `{name}` | {} |", row.join(" | "))?;
    }
    Ok(())
}

/// `string`, `integer`, `list of Pool`; what may be left out is so in the column of defaults.
fn type_name(field: &Value) -> String {
    if let Some(reference) = reference(field) {
        return reference;
    }
    let kind = match &field["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("any"),
        kind => kind.as_str().unwrap_or("any"),
    };
    if kind == "array" { format!("list of {}", type_name(&field["items"])) } else { kind.to_owned() }
}

fn reference(field: &Value) -> Option<String> {
    let alternatives = field["anyOf"].as_array().into_iter().flatten();
    let mut candidates = alternatives.chain([field]).filter_map(|candidate| candidate["$ref"].as_str());
    candidates.next().and_then(|path| path.rsplit('/').next()).map(str::to_lowercase)
}

fn allowed(field: &Value) -> String {
    let span = |low: &str, high: &str, unit: &str| match (field[low].as_u64(), field[high].as_u64()) {
        (Some(low), Some(high)) => Some(format!("{low}–{high}{unit}")),
        (None, Some(high)) => Some(format!("at most {high}{unit}")),
        _ => None,
    };
    span("minimum", "maximum", "")
        .or_else(|| span("minItems", "maxItems", " items"))
        .or_else(|| span("minLength", "maxLength", " bytes"))
        .unwrap_or_default()
}

/// The documentation comment as one line that a table can hold.
fn prose(schema: &Value) -> Result<String> {
    Ok(string(schema, "description")?.replace('\n', " ").replace('|', "\\|"))
}

fn string<'a>(schema: &'a Value, key: &str) -> Result<&'a str> {
    schema[key].as_str().with_context(|| format!("no {key} in {schema}"))
}

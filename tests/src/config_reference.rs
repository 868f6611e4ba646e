//! The configuration reference for users, made from the configuration's own types.

use std::collections::BTreeSet;
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
    for (title, name) in OBJECTS {
        object(&mut text, title, definition(&schema, name)?)?;
    }
    for (title, name) in CHOICES {
        choices(&mut text, title, definition(&schema, name)?)?;
    }
    let known = OBJECTS.iter().chain(&CHOICES).map(|(_, name)| *name).collect::<BTreeSet<_>>();
    for name in schema["$defs"].as_object().context("no types")?.keys() {
        anyhow::ensure!(known.contains(name.as_str()), "the type {name} is in no list of this file");
    }
    Ok(text)
}

/// Types that are JSON objects, in the order of the reference.
const OBJECTS: [(&str, &str); 11] = [
    ("A pool", "Pool"),
    ("An endpoint", "Endpoint"),
    ("A model", "Model"),
    ("A payload class", "PayloadClass"),
    ("A fixed plan", "FixedPlan"),
    ("A planned model", "PlannedModel"),
    ("`request`", "Request"),
    ("`request.session`", "Session"),
    ("`request.session.cookie`", "Cookie"),
    ("`request.body`", "Body"),
    ("`explain`", "Explain"),
];

/// Types of which one of several forms is written.
const CHOICES: [(&str, &str); 3] = [("Strategy", "Strategy"), ("Plan source", "PlanSource"), ("Updates", "Updates")];

fn definition<'a>(schema: &'a Value, name: &str) -> Result<&'a Value> {
    schema.pointer(&format!("/$defs/{name}")).with_context(|| format!("no type {name}"))
}

fn choices(text: &mut String, title: &str, schema: &Value) -> Result<()> {
    write!(text, "\n## {title}\n\n{}\n\n| value | meaning |\n|---|---|\n", prose(schema)?)?;
    for choice in schema["oneOf"].as_array().with_context(|| format!("{title} has no choices"))? {
        let value = match choice["const"].as_str() {
            Some(name) => format!("\"{name}\""),
            None => wrapped(choice)?,
        };
        writeln!(text, "| `{value}` | {} |", prose(choice)?)?;
    }
    Ok(())
}

/// `{"fixed": {…}}`
fn wrapped(choice: &Value) -> Result<String> {
    let fields = choice["properties"].as_object().context("neither a name nor an object")?;
    let name = fields.keys().next().context("an object without a field")?;
    Ok(format!("{{\"{name}\": {{…}}}}"))
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
    candidates.next().and_then(|path| path.rsplit('/').next()).map(words)
}

/// `PayloadClass` as `payload class`.
fn words(name: &str) -> String {
    let parted = name.char_indices().flat_map(|(n, letter)| {
        let gap = (n > 0 && letter.is_uppercase()).then_some(' ');
        gap.into_iter().chain(letter.to_lowercase())
    });
    parted.collect()
}

fn allowed(field: &Value) -> String {
    let number = |key: &str| field[key].as_number().map(|number| number.to_string().trim_end_matches(".0").to_owned());
    let span = |low: &str, high: &str, unit: &str| match (number(low), number(high)) {
        (Some(low), Some(high)) => Some(format!("{low}–{high}{unit}")),
        (None, Some(high)) => Some(format!("at most {high}{unit}")),
        (Some(low), None) => Some(format!("{low}{unit} or more")),
        _ => None,
    };
    span("minimum", "maximum", "")
        .or_else(|| span("minItems", "maxItems", " items"))
        .or_else(|| span("minProperties", "maxProperties", " entries"))
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

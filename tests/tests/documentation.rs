//! Documents that are made from the code, and the tree's own promises about itself.

use anyhow::{Context, Result};
use warmroute_tests::config_reference;
use warmroute_tests::harness::repository_root;

/// `UPDATE_DOCS=1` (as `make docs` sets it) writes the file anew instead.
#[test]
fn the_configuration_reference_is_current() -> Result<()> {
    let path = repository_root().join("docs/configuration.md");
    let made = config_reference::render()?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made)?;
    }
    let written = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    assert!(written == made, "docs/configuration.md is not current: run `make docs`");
    Ok(())
}

/// Every field has its meaning, and every number its range and default.
#[test]
fn every_field_is_documented() -> Result<()> {
    for line in config_reference::render()?.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split(" | ").collect();
        let number = cells[1] == "integer" || cells[1] == "number";
        assert!(cells.iter().all(|cell| !cell.trim_matches(['|', ' ']).is_empty()) || !number, "{line}");
        assert!(cells.last().is_some_and(|meaning| meaning.len() > 20), "{line}");
    }
    Ok(())
}

/// Each stat that the filter defines stands in the documents, under its full name.
#[test]
fn every_stat_is_documented() -> Result<()> {
    let text = std::fs::read_to_string(repository_root().join("docs/stats.md"))?;
    for name in warmroute_core::stats::names() {
        assert!(text.contains(&format!("`{name}`")), "{name} is not in docs/stats.md");
    }
    Ok(())
}

/// Links between the documents, and to files of the tree, lead somewhere.
#[test]
fn relative_links_lead_somewhere() -> Result<()> {
    let root = repository_root();
    let mut documents = Vec::new();
    for folder in ["", "docs", "envoy", "envoy/compose"] {
        for entry in std::fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    assert!(documents.len() >= 5, "{documents:?}");
    for document in documents {
        let text = std::fs::read_to_string(&document)?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or(link);
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = document.parent().context("no folder")?.join(target);
            assert!(path.exists(), "{} links to {target}, which is not there", document.display());
        }
    }
    Ok(())
}

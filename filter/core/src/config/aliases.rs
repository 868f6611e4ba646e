//! Names of models that requests are never routed as: each request's name is resolved first, in one step.

use super::compile::Check;
use super::shortened;
use std::collections::{BTreeMap, BTreeSet};

/// By an alias, what it stands for. An alias that another one stands for is left out, since requests are routed as it.
pub(super) fn never_routed(aliases: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let targets: BTreeSet<&String> = aliases.values().collect();
    let never = aliases.iter().filter(|(alias, _)| !targets.contains(alias));
    crate::small::map(never.map(|(alias, model)| (alias.clone(), model.clone())))
}

impl Check {
    /// The id of a model as requests are routed, which an alias is not.
    pub(super) fn routed_name(&mut self, path: &str, model: &str) {
        self.model_name(path, model);
        if let Some(target) = self.never_routed.get(model) {
            let target = shortened(target);
            self.problem(path, format!("`{}` is an alias of `{target}`; write `{target}`", shortened(model)));
        }
    }
}

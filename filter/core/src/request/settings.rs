//! How requests are read, as the configuration says.

use super::{BodySettings, Model, SessionSettings};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// See the module. Names of headers are in lower case, as HTTP/2 and Envoy have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// The model id: the first of these that is there and not empty.
    pub model_headers: Box<[Box<str>]>,
    /// The request type: the first of these that is there and not empty.
    pub type_headers: Box<[Box<str>]>,
    /// Other names of models.
    pub aliases: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// Model of inference requests that name none.
    pub default_model: Option<Box<[u8]>>,
    /// Whether callers may set the urgency and ask for explanations.
    pub trusted: bool,
    /// Header that tells the urgency.
    pub urgency_header: Option<Box<str>>,
    /// Header that asks for an explanation.
    pub debug_header: Option<Box<str>>,
    /// Header that the strategy `hash` goes by.
    pub hash_header: Option<Box<str>>,
    /// What tells the session; `None`: there are no sessions.
    pub session: Option<SessionSettings>,
    /// How bodies are read; `None`: they are not.
    pub body: Option<BodySettings>,
}

impl RequestSettings {
    /// Whether [`super::Request::from_headers`] wants the client's address.
    #[must_use]
    pub fn needs_client_address(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.address)
    }

    /// The model of that name, or the one that the name is an alias of; `None` for an empty name.
    pub(super) fn resolve<'a>(&self, id: Cow<'a, [u8]>) -> Option<Model<'a>> {
        match self.aliases.get(&*id) {
            Some(model) => Model::new(model.to_vec()).map(|model| Model { aliased: true, ..model }),
            None => Model::new(id),
        }
    }
}
